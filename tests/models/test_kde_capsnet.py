import pytest
import torch
from torch.nn import functional as F

import clustercaps as cc
from clustercaps.experiments.harness.counts import fits
from clustercaps.models.peers.kde_capsnet import WindowVotes
from clustercaps.models.registry import count_parameters, get_preset

TINY = {"widths": [4, 4], "types": 2, "dim": 3, "img_size": 32, "num_classes": 4}


def test_about_as_many_parameters_as_the_paper_says() -> None:
    counts = {"frms_capsnet": 1_240_480, "frem_capsnet": 1_240_482}
    for name, count in counts.items():
        assert count_parameters(name) == count
        assert fits(count, "1.2M")
        assert fits(count_parameters(name, in_chans=1), "1.2M")
        assert get_preset(name).reconstruction


def test_votes_of_windows_by_hand() -> None:
    votes = WindowVotes(2, 3, parents=4, dim=5)
    capsules, activations = torch.randn(2, 2, 3, 7, 5), torch.rand(2, 2, 7, 5)
    out, spread = votes(capsules), votes.spread(activations)
    assert out.shape == (2, 2 * 9, 4, 5, 3, 2)
    assert spread.shape == (2, 2 * 9, 3, 2)
    # Type 1, row 2 and column 0 of the window of the parent at (1, 1).
    child = 1 * 9 + 2 * 3 + 0
    expected = votes.weight[1, 2, 0] @ capsules[0, 1, :, 2 + 2, 2 + 0]
    torch.testing.assert_close(out[0, child, :, :, 1, 1], expected)
    torch.testing.assert_close(spread[:, child, 1, 1], activations[:, 1, 4, 2])


def test_votes_add_up_to_a_convolution() -> None:
    votes = WindowVotes(2, 3, parents=4, dim=5)
    capsules = torch.randn(2, 2, 3, 7, 5)
    # [out, in, row, column] of an ordinary convolution.
    weight = votes.weight.permute(3, 4, 0, 5, 1, 2).flatten(2, 3).flatten(0, 1)
    expected = F.conv2d(capsules.flatten(1, 2), weight, stride=2)
    torch.testing.assert_close(votes(capsules).sum(1).flatten(1, 2), expected)


def test_lengths_are_activations() -> None:
    images = torch.rand(3, 3, 32, 32)
    frms = cc.create_model("frms_capsnet", **TINY).eval()
    torch.testing.assert_close(frms.forward_features(images), frms.route(images).capsules)
    frem = cc.create_model("frem_capsnet", **TINY).eval()
    torch.testing.assert_close(frem(images), frem.route(images).activations, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(frem(images).sum(1), torch.ones(3), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["frms_capsnet", "frem_capsnet"])
@pytest.mark.parametrize("size", [17, 33, (24, 40), 64])
def test_any_image_size(name: str, size: int | tuple[int, int]) -> None:
    model = cc.create_model(name, **{**TINY, "img_size": size}).eval()
    assert model(torch.rand(2, 3, *model.img_size)).shape == (2, 4)


def test_the_kernel_width_can_be_fixed() -> None:
    options = {"bandwidth": 3.0, "learn_bandwidth": False}
    count = count_parameters("frem_capsnet", routing_options=options)
    assert count == count_parameters("frms_capsnet")


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"2x2 .* 3x3 convolution \(windows of capsules\)"):
        cc.create_model("frms_capsnet", img_size=16)
    with pytest.raises(ValueError, match="widths must be two channel counts"):
        cc.create_model("frms_capsnet", widths=[4])
