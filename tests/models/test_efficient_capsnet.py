import pytest
import torch

import clustercaps as cc
from clustercaps.layers.decoders import ConvolutionalDecoder
from clustercaps.models import TrainingBatch
from clustercaps.models.registry import count_parameters

MULTI_MNIST = {"img_size": 36, "strides": [1, 1, 2, 2], "primary_kernel": 5, "primary_stride": 2}
TINY = {"widths": [4, 4, 4, 8], "img_size": 13, "primary_dim": 4, "num_classes": 4, "dim": 3}


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("efficient_capsnet", {"decoder": False}, 161_824),
        ("efficient_capsnet", {}, 161_824 + 1_411_344),
        ("efficient_capsnet", {**MULTI_MNIST, "decoder": False}, 154_656),
        ("efficient_capsnet_smallnorb", {"decoder": False}, 151_664),
    ],
)
def test_parameters(name: str, settings: dict[str, object], count: int) -> None:
    assert count_parameters(name, **settings) == count


def test_count_with_running_statistics() -> None:
    with torch.device("meta"):
        model = cc.create_model("efficient_capsnet", decoder=False)
    running = sum(buffer.numel() for buffer in model.buffers() if buffer.ndim)
    assert 161_824 + running == 162_400


def test_primary_kernel_is_the_remaining_map() -> None:
    for size, window in [(28, (9, 9)), (32, (11, 11)), ((28, 40), (9, 15))]:
        with torch.device("meta"):
            model = cc.create_model("efficient_capsnet", img_size=size)
        assert model.primary.kernel_size == window
    with torch.device("meta"):
        smallnorb = cc.create_model("efficient_capsnet_smallnorb")
        digits = cc.create_model("efficient_capsnet", **MULTI_MNIST)
    assert smallnorb.primary.kernel_size == (8, 8)
    assert digits.primary.kernel_size == (5, 5)


def test_capsules_are_neighbouring_channels() -> None:
    model = cc.create_model("efficient_capsnet", **TINY).eval()
    kept = []
    model.votes.register_forward_hook(lambda *call: kept.append(call[1][0]))
    images = torch.rand(2, 1, 13, 13)
    channels = model.primary(model.layers(images))[:, :, 0, 0]
    model(images)
    # A squash changes no direction.
    both = torch.nn.functional.cosine_similarity(kept[0], channels.view(2, 2, 4), dim=-1)
    torch.testing.assert_close(both, torch.ones(2, 2))


def test_lengths_stay_below_one() -> None:
    model = cc.create_model("efficient_capsnet", **TINY).eval()
    scores = model(10 * torch.randn(3, 1, 13, 13))
    assert ((scores >= 0) & (scores < 1)).all()


def test_loss_by_hand() -> None:
    model = cc.create_model("efficient_capsnet", **TINY).eval()
    images, labels = torch.rand(3, 1, 13, 13), torch.tensor([0, 3, 1])
    loss, lengths = model.training_loss(TrainingBatch(images, labels, images))
    drawn = model.reconstruct(model.forward_features(images), labels)
    right = torch.nn.functional.one_hot(labels, 4)
    margin = right * (0.9 - lengths).clamp(min=0) ** 2
    margin = margin + 0.5 * (1 - right) * (lengths - 0.1).clamp(min=0) ** 2
    error = (drawn - images).square().mean((1, 2, 3))
    torch.testing.assert_close(loss, margin.sum(1) + 0.392 * error)


@pytest.mark.parametrize("size", [(48, 48), (32, 32), (25, 30), (1, 7)])
def test_convolutional_decoder_draws_any_size(size: tuple[int, int]) -> None:
    drawn = ConvolutionalDecoder(5, 2, size)(torch.rand(1, 5))
    assert drawn.shape == (1, 2, *size)
    assert ((drawn >= 0) & (drawn <= 1)).all()


def test_convolutional_decoder_of_the_paper() -> None:
    layers = ConvolutionalDecoder(80, 2, (48, 48)).layers
    assert layers[0].out_features == 64
    assert layers(torch.rand(1, 80)).shape == (1, 2, 48, 48)


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"maps of 2x2 are too small.*\(convolution 4 of 4\)"):
        cc.create_model("efficient_capsnet", img_size=10)
    with pytest.raises(ValueError, match=r"whole feature map of 9x9.*omit primary_kernel"):
        cc.create_model("efficient_capsnet", primary_kernel=5)
    with pytest.raises(ValueError, match="one entry per convolution"):
        cc.create_model("efficient_capsnet", kernels=[3])
    with pytest.raises(ValueError, match="cannot be divided into capsules of 7"):
        cc.create_model("efficient_capsnet", primary_dim=7)
    with pytest.raises(KeyError, match="did you mean 'batch'"):
        cc.create_model("efficient_capsnet", norm="bacth")
