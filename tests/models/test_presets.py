import pytest
import torch

import clustercaps as cc
from clustercaps.models.peers import PEERS
from clustercaps.training.settings import resolve


def test_every_network_has_a_recipe() -> None:
    assert all(preset.recipe is not None for preset in PEERS.values())


@pytest.mark.parametrize("name", PEERS)
def test_recipes_can_be_run(name: str) -> None:
    # Image sets give 32x32, whatever the paper's images were.
    with torch.device("meta"):
        cc.create_model(name, img_size=32)
    assert resolve(name, "smallnorb").recipe == "paper"
    assert resolve(name, "cifar10", "fast").epochs == 12
