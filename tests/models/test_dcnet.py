import pytest
import torch

import clustercaps as cc
from clustercaps.losses import margin_loss
from clustercaps.models import TrainingBatch
from clustercaps.models.peers.dcnet import DenseBlock
from clustercaps.models.registry import count_parameters

TINY = {"layers": 2, "growth": 3, "types": 2, "primary_dim": 3, "num_classes": 3}


def test_parameter_counts() -> None:
    assert count_parameters("dcnet") == 11_886_370
    assert count_parameters("dcnet", in_chans=3, img_size=32) == 16_079_926
    assert count_parameters("dcnet", in_chans=2, img_size=32, num_classes=5) == 12_017_188
    assert count_parameters("dcnet3") == 13_153_846


def test_counts_of_the_parts() -> None:
    model = cc.create_model("dcnet")

    def count(module: torch.nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    assert count(model.block) == 260_352 + 1_808 + 514
    assert count(model.primary) == 5_329_408
    assert count(model.votes) == 4_096_000
    assert count(model.decoder) == 2_198_288


def test_channels_grow_inside_a_dense_block() -> None:
    block = DenseBlock(3, layers=4, growth=5)
    assert [layer[2].in_channels for layer in block.layers] == [3, 8, 13, 18]
    maps = torch.randn(2, 3, 6, 7)
    dense = block(maps)
    assert dense.shape == (2, 23, 6, 7)
    # What came in goes through to the last batch norm unchanged.
    normed = (maps - maps.mean((0, 2, 3), keepdim=True)) / maps.var(
        (0, 2, 3), unbiased=False, keepdim=True
    ).sqrt()
    torch.testing.assert_close(dense[:, :3], normed, rtol=1e-3, atol=1e-4)


def test_three_levels() -> None:
    model = cc.create_model("dcnet3")
    sizes = [votes.weight.shape for votes in model.votes]
    assert [size[0] for size in sizes] == [2352, 300, 48, 2700]
    assert [size[2] for size in sizes] == [16, 12, 10, 16]
    assert [block.out_chans for block in model.blocks] == [259, 352, 352]


def test_every_head_of_the_three_levels_has_its_margin_loss() -> None:
    model = cc.create_model("dcnet3", **TINY, dims=[4, 3, 2, 5], img_size=21).eval()
    images, labels = torch.rand(2, 3, 21, 21), torch.tensor([0, 2])
    capsules = model.forward_features(images)
    assert capsules.shape == (2, 3, 14)
    loss, scores = model.training_loss(TrainingBatch(images, labels, images))
    parts = (capsules[..., :4], capsules[..., 4:7], capsules[..., 7:9], capsules[..., 9:])
    expected = sum(margin_loss(part.norm(dim=2), labels) for part in parts)
    drawn = model.reconstruct(capsules, labels)
    assert drawn.shape == (2, 1, 21, 21)
    expected = expected + 0.0005 * (drawn - images[:, :1]).square().sum((1, 2, 3))
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(scores, capsules.norm(dim=2), rtol=1e-3, atol=1e-4)


def test_three_levels_are_saved_and_loaded(tmp_path) -> None:
    model = cc.create_model("dcnet3", **TINY, dims=[4, 3, 2, 5], img_size=21).eval()
    model.save_pretrained(tmp_path)
    images = torch.rand(2, 3, 21, 21)
    torch.testing.assert_close(cc.from_pretrained(tmp_path).eval()(images), model(images))


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="too small for a 9x9 convolution"):
        cc.create_model("dcnet", **TINY, img_size=8)
    with pytest.raises(ValueError, match=r"3x3 convolution \(primary capsules of level 3\)"):
        cc.create_model("dcnet3", **TINY, img_size=20)
    with pytest.raises(ValueError, match="dims must be four integers"):
        cc.create_model("dcnet3", dims=[4, 4])
