from pathlib import Path

import pytest
import torch

import clustercaps as cc
from clustercaps.functional import heinsen_route
from clustercaps.layers import HeinsenCapsules
from clustercaps.models.registry import count_parameters

TINY = {"width": 4, "types": 3, "parents": 4, "side": 2, "img_size": 14, "strides": [1, 2]}


def test_parameters() -> None:
    assert count_parameters("heinsen_smallnorb") == 271_688


@pytest.mark.parametrize("shared", [True, False])
def test_layer_equals_routing_of_its_votes(shared: bool) -> None:
    layer = HeinsenCapsules(5, 3, 2, 3, shared).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    poses = torch.randn(2, 5, 2, 2, dtype=torch.float64)
    scores = torch.randn(2, 5, dtype=torch.float64)
    routed = layer(poses, scores)
    votes = torch.empty(2, 5, 3, 4, dtype=torch.float64)
    for child in range(5):
        own = 0 if shared else child
        for parent in range(3):
            # The pose stands on the left.
            moved = poses[:, child] @ layer.weight[own, parent] + layer.bias[own, parent]
            votes[:, child, parent] = moved.flatten(1)
    routing = layer.routing
    expected = heinsen_route(votes, scores, routing.beta_use, routing.beta_ignore)
    torch.testing.assert_close(routed, expected)


def test_shared_matrices_do_not_see_the_order() -> None:
    layer = HeinsenCapsules(5, 3, 2, 3, shared=True)
    poses, scores = torch.randn(2, 5, 2, 2), torch.randn(2, 5)
    straight, turned = layer(poses, scores), layer(poses.flip(1), scores.flip(1))
    torch.testing.assert_close(turned.capsules, straight.capsules)


def test_coordinates_are_channels() -> None:
    model = cc.create_model("heinsen_smallnorb", **TINY)
    rows, columns = model.coordinates[0]
    assert (rows[0, 0], rows[-1, 0], columns[0, 0], columns[0, -1]) == (-1, 1, -1, 1)
    assert rows[3].unique().numel() == 1
    assert "coordinates" not in model.state_dict()
    assert model.layers[1].in_channels == model.in_chans + 2


def test_stored_settings_may_name_checkpoint(tmp_path: Path) -> None:
    model = cc.create_model("heinsen_smallnorb", **TINY, checkpoint=True).eval()
    model.save_pretrained(tmp_path)
    images = torch.rand(2, 2, 14, 14)
    torch.testing.assert_close(cc.from_pretrained(tmp_path)(images), model(images))


def test_small_images_and_batches() -> None:
    with pytest.raises(ValueError, match=r"maps of 2x2 are too small.*\(convolution 5 of 6\)"):
        cc.create_model("heinsen_smallnorb", img_size=18)
    model = cc.create_model("heinsen_smallnorb", **TINY).eval()
    for batch in (0, 1):
        assert model(torch.rand(batch, 2, 14, 14)).shape == (batch, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.rand(2, 2, 14, 14)).isfinite().all()
