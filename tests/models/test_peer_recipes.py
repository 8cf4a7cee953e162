import pytest
import torch

import clustercaps as cc
from clustercaps.models.peers import PEERS
from clustercaps.peer_recipes import PEER_RECIPES
from clustercaps.recipes import resolve


def test_every_network_has_a_recipe() -> None:
    assert set(PEER_RECIPES) == set(PEERS)


@pytest.mark.parametrize("name", PEERS)
def test_recipes_can_be_run(name: str) -> None:
    # Image sets give 32x32, whatever the paper's images were.
    with torch.device("meta"):
        cc.create_model(name, img_size=32)
    assert resolve(name, "smallnorb").recipe == "paper"
    assert resolve(name, "cifar10", "fast").epochs == 12
