"""Trained weights with another head or other colour channels."""

from pathlib import Path

import pytest
import torch

import clustercaps as cc
from clustercaps.models.transfer import head_names, with_in_chans

SMALL = {"dim": 2, "votes": 2, "img_size": 8}


@pytest.fixture
def grey(tmp_path: Path) -> Path:
    cc.create_model("m1", in_chans=1, **SMALL).save_pretrained(tmp_path)
    return tmp_path


def test_another_number_of_classes_makes_a_new_head(grey: Path) -> None:
    old, new = cc.from_pretrained(grey), cc.from_pretrained(grey, num_classes=5)
    assert not new.training
    images = torch.rand(2, 1, 8, 8)
    assert new(images).shape == (2, 5)
    assert new.forward_features(images).equal(old.forward_features(images))
    assert new.settings["num_classes"] == 5


@pytest.mark.parametrize("name", ["class_capsules", "vb_small"])
def test_the_new_head_is_in_eval_mode(name: str, tmp_path: Path) -> None:
    cc.create_model(name, in_chans=1).save_pretrained(tmp_path)
    model = cc.from_pretrained(tmp_path, num_classes=3)
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("chans", [2, 3])
def test_grey_images_look_the_same_in_more_channels(grey: Path, chans: int) -> None:
    # In double precision: with few votes, a spread can be so small that rounding shows.
    old = cc.from_pretrained(grey).double()
    new = cc.from_pretrained(grey, in_chans=chans).double()
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    close = {"rtol": 1e-4, "atol": 1e-4}
    expected = old(images)
    torch.testing.assert_close(new(images.expand(-1, chans, -1, -1)), expected, **close)
    back = with_in_chans(new, 1)
    torch.testing.assert_close(back(images), expected, **close)
    assert back.settings == old.settings


def test_decoders_keep_their_channels(tmp_path: Path) -> None:
    cc.create_model("affine_cnn", in_chans=1).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"from 1 to 3 colour channels: decoder\.\S+ depends on"):
        cc.from_pretrained(tmp_path, in_chans=3)


def test_packaged_weights_take_other_channels() -> None:
    model = cc.create_model("m1", pretrained="fashion-mnist", in_chans=3, num_classes=4)
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("m1", {"head.weight", "head.bias"}),
        ("capsnet_svhn", {"votes.weight"}),
        ("self_routing_1", {"classes.weight", "classes.bias"}),
    ],
)
def test_the_head_is_what_depends_on_the_classes(name: str, expected: set[str]) -> None:
    with torch.device("meta"):
        assert head_names(cc.create_model(name)) == expected


@pytest.mark.parametrize("name", cc.list_models())
def test_every_network_has_a_head(name: str) -> None:
    with torch.device("meta"):
        model = cc.create_model(name)
        assert head_names(model) < model.state_dict().keys()
        assert head_names(model)
