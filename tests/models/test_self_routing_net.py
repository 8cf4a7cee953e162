import pytest
import torch
from torch.nn import functional as F

import clustercaps as cc
from clustercaps.layers import SelfRoutingCapsules2d, SelfRoutingClasses
from clustercaps.layers.resnet import BasicBlock
from clustercaps.models import TrainingBatch
from clustercaps.models.registry import count_parameters

TINY = {"width": 2, "blocks": 1, "types": 3, "dim": 4, "num_classes": 4, "img_size": 9}


def test_parameters() -> None:
    assert count_parameters("self_routing_1") == 931_664
    assert count_parameters("self_routing_2") == 3_187_536


def test_resnet_20_has_its_size() -> None:
    with torch.device("meta"):
        front = cc.create_model("self_routing_1").get_submodule("front")
    # The published 269,722 less the linear classifier of 64 x 10 + 10.
    assert sum(p.numel() for p in front.parameters()) == 269_722 - 650


def test_free_shortcut_takes_pixels_and_adds_zeros() -> None:
    block = BasicBlock(2, 4, 2, learned_shortcut=False).eval()
    torch.nn.init.zeros_(block.conv2.weight)
    maps = torch.rand(1, 2, 5, 5)
    out = block(maps)
    torch.testing.assert_close(out[:, 1:3], maps[:, :, ::2, ::2])
    assert not out[:, [0, 3]].any()


@pytest.mark.parametrize("stride", [1, 2])
def test_layer_by_loops(stride: int) -> None:
    layer = SelfRoutingCapsules2d(2, 3, 4, stride).double()
    torch.nn.init.normal_(layer.routing.weight)
    torch.nn.init.normal_(layer.routing.bias)
    layer.norm = torch.nn.Identity()  # type: ignore[assignment]
    poses = torch.randn(1, 2, 4, 5, 5, dtype=torch.float64)
    activations = torch.rand(1, 2, 5, 5, dtype=torch.float64)
    capsules, shares = layer(poses, activations)
    assert shares.shape == (1, 3, -(-5 // stride), -(-5 // stride))
    for row, column in [(0, 0), (1, 2)]:
        total, mass, everything = (torch.zeros(s).double() for s in ((3, 4), (3,), ()))
        for kind in range(2):
            for place in range(9):
                y = row * stride + place // 3 - 1
                x = column * stride + place % 3 - 1
                if not (0 <= y < 5 and 0 <= x < 5):
                    continue
                child, pose = kind * 9 + place, poses[0, kind, :, y, x]
                gate = (layer.routing.weight[child] @ pose + layer.routing.bias[child]).softmax(0)
                used = gate * activations[0, kind, y, x]
                total += used[:, None] * (layer.weight[child] @ pose)
                mass += used
                everything += activations[0, kind, y, x]
        expected = total / mass[:, None]
        torch.testing.assert_close(capsules[0, :, :, row, column], expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            shares[0, :, row, column], mass / everything, rtol=1e-5, atol=1e-5
        )


def test_logits_are_logarithms_of_shares() -> None:
    model = cc.create_model("self_routing_2", **TINY).eval()
    torch.nn.init.normal_(model.classes.weight)
    images, labels = torch.rand(3, 3, 9, 9), torch.tensor([0, 3, 1])
    loss, logits = model.training_loss(TrainingBatch(images, labels, images))
    torch.testing.assert_close(logits.exp().sum(1), torch.ones(3), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        loss, F.nll_loss(logits, labels, reduction="none"), rtol=1e-4, atol=1e-4
    )


def test_fresh_classes_are_equal() -> None:
    shares = SelfRoutingClasses(6, 4, 5)(torch.randn(2, 6, 4), torch.rand(2, 6))
    torch.testing.assert_close(shares, torch.full((2, 5), 0.2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 9, 32, (13, 30)])
@pytest.mark.parametrize("name", ["self_routing_1", "self_routing_2"])
def test_any_image_size(name: str, size: int | tuple[int, int]) -> None:
    model = cc.create_model(name, **{**TINY, "img_size": size}).eval()
    for batch in (0, 1):
        assert model(torch.rand(batch, 3, *model.img_size)).shape == (batch, 4)


def test_half_precision_runs() -> None:
    model = cc.create_model("self_routing_2", **TINY)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(torch.rand(2, 3, 9, 9))
    assert logits.dtype == torch.float32
    logits.sum().backward()
