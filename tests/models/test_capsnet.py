import pytest
import torch

import clustercaps as cc
from clustercaps.layers.primary import PrimaryCapsules
from clustercaps.models import TrainingBatch
from clustercaps.models.registry import count_parameters
from clustercaps.routing.squash import squash

COLOUR = {"in_chans": 3, "img_size": 32}
TINY = {"width": 6, "types": 3, "primary_dim": 4, "dim": 5}


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("capsnet", {}, 8_215_568),
        ("capsnet", {"routing_options": {"bias": True}}, 8_215_728),
        ("capsnet", {"decoder": False}, 6_804_224),
        ("capsnet", COLOUR, 11_749_120),
        ("capsnet", {**COLOUR, "decoder": False}, 7_992_576),
        ("capsnet_cifar10", {}, 22_476_448),
        ("capsnet_smallnorb", {}, 9_327_104),
        ("capsnet_smallnorb", {"decoder": False}, 6_661_120),
        ("capsnet_svhn", {}, 1_004_896),
        ("capsnet_svhn", {"img_size": 24, "same_padding": True}, 1_619_296),
        # Others count the CIFAR-10 form so, seven times: without padding, with decoder and a
        # capsule for no class at all.
        ("capsnet", {"in_chans": 3, "img_size": 24, "types": 64, "num_classes": 11}, 14_508_736),
        ("nair", {}, 11_749_120),
        ("nair", {"in_chans": 1, "img_size": 28}, 8_215_568),
        ("maxmin_capsnet", {}, 8_215_568),
    ],
)
def test_parameter_counts(name: str, settings: dict[str, object], expected: int) -> None:
    assert count_parameters(name, **settings) == expected


def test_primary_capsules_are_channels_of_one_place() -> None:
    primary = PrimaryCapsules(2, types=3, dim=4, kernel_size=3)
    maps = torch.randn(2, 2, 9, 7)
    capsules, channels = primary(maps), primary.conv(maps)
    assert capsules.shape == (2, primary.count((9, 7)), 4)
    expected = squash(channels[:, 4:8, 2, 1])
    # Type 1 at row 2 and column 1 of maps of 4x3.
    torch.testing.assert_close(capsules[:, 1 * 12 + 2 * 3 + 1], expected)


def test_reshaping_without_moving_the_channels_is_something_else() -> None:
    primary = PrimaryCapsules(2, types=3, dim=4, kernel_size=3)
    maps = torch.randn(2, 2, 9, 7)
    wrong = squash(primary.conv(maps).reshape(2, -1, 4))
    assert wrong.shape == primary(maps).shape
    assert not wrong.allclose(primary(maps))


def test_the_loss_is_margin_and_weighted_squared_error() -> None:
    model = cc.create_model("capsnet", **TINY, num_classes=3, img_size=19)
    images = torch.rand(2, 1, 19, 19)
    labels = torch.tensor([0, 2])
    loss, lengths = model.training_loss(TrainingBatch(images, labels, images))
    capsules = model.forward_features(images)
    error = (model.reconstruct(capsules, labels) - images).square().sum((1, 2, 3))
    plain = cc.create_model("capsnet", **TINY, num_classes=3, img_size=19, reconstruction=0.0)
    plain.load_state_dict(model.state_dict())
    margin, _ = plain.training_loss(TrainingBatch(images, labels, images))
    torch.testing.assert_close(loss, margin + 0.0005 * error)
    torch.testing.assert_close(lengths, capsules.norm(dim=2), rtol=1e-3, atol=1e-4)


def test_the_decoder_sees_the_predicted_capsule_without_labels() -> None:
    model = cc.create_model("capsnet", **TINY, img_size=19).eval()
    images = torch.rand(4, 1, 19, 19)
    capsules, predicted = model.forward_features(images), model(images).argmax(1)
    torch.testing.assert_close(model.reconstruct(capsules), model.reconstruct(capsules, predicted))
    with pytest.raises(ValueError, match="decoder=True"):
        cc.create_model("capsnet", **TINY, decoder=False).reconstruct(capsules)


def test_small_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"9x9 .* \(primary capsules\); use larger images"):
        cc.create_model("capsnet", img_size=16)
    with pytest.raises(ValueError, match=r"8x8 are too small for a 9x9 .*\(first convolution\)"):
        cc.create_model("capsnet", img_size=8)
    cc.create_model("capsnet", **TINY, img_size=(17, 20))


def test_presets_differ_in_routing() -> None:
    assert cc.create_model("maxmin_capsnet", **TINY).routing.axis == "parents"
    assert cc.create_model("nair", **TINY).routing.iterations == 3
    coupling = cc.create_model("capsnet_cifar10", **TINY).route(torch.rand(1, 3, 24, 24)).coupling
    assert (coupling.sum(2) < 1).all()


@torch.no_grad()
def test_uneven_padding_reads_the_pixels_that_tensorflow_reads() -> None:
    """SAME with windows of 9 and stride 2 puts 3 zeros before 24 rows and 4 after them."""
    settings = {"img_size": 24, "in_chans": 1, "width": 1, "types": 1, "primary_dim": 1}
    model = cc.create_model("capsnet_cifar10", **settings)
    model.conv.weight.zero_()[0, 0, 4, 4] = 1.0
    model.primary.conv.weight.fill_(1.0)
    model.conv.bias.zero_()
    model.primary.conv.bias.zero_()
    channels = model.primary_channels(torch.ones(1, 1, 24, 24))
    assert channels.shape == (1, 1, 12, 12)
    # Windows start at -3, -1, 1, ..., 19: how many of their rows are inside the image.
    inside = [min(24, start + 9) - max(0, start) for start in range(-3, 21, 2)]
    assert inside == [6, 8, 9, 9, 9, 9, 9, 9, 9, 9, 7, 5]
    torch.testing.assert_close(channels[0, 0, :, 5], 9.0 * torch.tensor(inside).float())
    assert model.votes.weight.shape[0] == 144
    # As before: an even frame, whose windows start at -4.
    even = cc.create_model("capsnet_cifar10", **settings, same_padding=True)
    even.load_state_dict(model.state_dict())
    shifted = even.primary_channels(torch.ones(1, 1, 24, 24))
    assert shifted[0, 0, 0, 5] == 9 * 5
    with pytest.raises(KeyError, match="unknown same_padding 'odd'"):
        cc.create_model("capsnet", same_padding="odd")
