"""Networks in timm's registry; skipped unless timm is installed (pip install --no-deps timm)."""

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from helpers.torchvision_stub import without_torchvision

import clustercaps as cc

pytestmark = pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")


@pytest.fixture(scope="module")
def timm() -> Any:
    with without_torchvision():
        import timm

        import clustercaps.timm  # noqa: F401
    return timm


def test_every_network_is_registered(timm: Any) -> None:
    names = [name.removeprefix("clustercaps_") for name in timm.list_models("clustercaps_*")]
    assert sorted(names) == sorted(cc.list_models())
    trained = timm.list_models("clustercaps_*", pretrained=True)
    found = [name.removeprefix("clustercaps_").replace(".", ":") for name in trained]
    assert sorted(found) == cc.models.list_pretrained()


def test_pretrained_networks_are_those_of_the_package(timm: Any) -> None:
    model = timm.create_model("clustercaps_m1.fashion-mnist", pretrained=True).eval()
    images = torch.rand(2, 1, 32, 32)
    assert model(images).equal(cc.from_pretrained("m1:fashion-mnist")(images))
    cfg = model.default_cfg
    assert cfg["input_size"] == (1, 32, 32)
    assert (cfg["mean"], cfg["std"]) == ((0.286,), (0.353,))
    assert cfg["label_names"][9] == "Ankle boot"
    changed = timm.create_model("clustercaps_m1", pretrained=True, num_classes=5, in_chans=3)
    assert changed(torch.rand(1, 3, 32, 32)).shape == (1, 5)


def test_features_are_the_capsules_of_the_layers(timm: Any) -> None:
    options = {"pretrained": True, "out_indices": (1, -1)}
    name = "clustercaps_m1.fashion-mnist"
    features = timm.create_model(name, features_only=True, **options).eval()
    images = torch.rand(2, 1, 32, 32)
    maps = features(images)
    assert [tuple(each.shape) for each in maps] == [(2, 24, 16, 16), (2, 24, 8, 8)]
    assert features.feature_info.channels() == [24, 24]
    assert features.feature_info.reduction() == [2, 4]
    whole = cc.from_pretrained("m1:fashion-mnist")
    assert maps[1].equal(whole.forward_features(images).flatten(1, 2))
    assert features.default_cfg["std"] == (0.353,)


def test_names_with_a_slash_are_not_for_the_registry(timm: Any) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        timm.create_model("clustercaps/m1")


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("m2", {"pretrained": True}, "there are no packaged weights for m2"),
        ("m2", {"drop_rate": 0.1}, "clustercaps_m2 has no drop_rate, got 0.1"),
        ("capsnet_svhn", {"global_pool": "avg"}, "clustercaps_capsnet_svhn has no global_pool"),
        ("capsnet_svhn", {"features_only": True}, "features_only is for m1 to m4"),
        ("m2", {"features_only": True, "out_indices": (5,)}, "out_indices must be from -5 to 4"),
        ("m2", {"vote": 3}, "unknown setting 'vote'; did you mean 'votes'"),
    ],
)
def test_what_a_network_does_not_have(
    timm: Any, name: str, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        timm.create_model(f"clustercaps_{name}", **options)
    assert timm.create_model("clustercaps_s1", drop_rate=0.0, global_pool="").num_classes == 10


def test_the_package_alone_does_not_import_timm() -> None:
    code = "import sys, clustercaps.models; print('timm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
