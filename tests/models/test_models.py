import inspect
import json
from typing import Any

import pytest
import torch

import clustercaps as cc
from clustercaps.models import CapsuleNet, ImageClassifier, TrainingBatch
from clustercaps.models.peers import PEERS
from clustercaps.models.registry import PRESETS
from clustercaps.testing import assert_finite

CAPSNET = {"width": 6, "types": 3, "primary_dim": 4, "dim": 5}
MATRIX = {"img_size": 17, "width": 8, "types": [2, 3, 2], "side": 2}
NORB = {"img_size": 14, "strides": [1, 2]}
# Small enough for CI: networks that would be large get fewer or smaller capsules.
SMALL: dict[str, dict[str, Any]] = {
    "imagenet_m4": {"dim": 3, "num_classes": 7, "img_size": 64},
    "viewpoint_cnn": {"img_size": 12},
    "baseline_cnn": {"width": 8},
    "capsnet": CAPSNET,
    "capsnet_cifar10": CAPSNET,
    "capsnet_smallnorb": CAPSNET,
    "capsnet_svhn": CAPSNET,
    "nair": CAPSNET,
    "maxmin_capsnet": CAPSNET,
    "hitnet": {"width": 6, "dim": 4},
    "dcnet": {"layers": 2, "growth": 3, "types": 2, "primary_dim": 3, "dim": 4},
    "dcnet3": {"layers": 2, "growth": 3, "types": 2, "primary_dim": 3, "dims": [4, 3, 2, 4]},
    "ms_capsnet": {"width": 6, "types": 2, "dim": 4},
    "ms_capsnet_28": {"width": 6, "types": 2, "dim": 4},
    "inverted_attention": {"width": 6, "types": 3, "dim": 4, "img_size": 17},
    "inverted_attention_resnet": {"width": 6, "types": 3, "dim": 4, "img_size": 17},
    "kernel_capsnet": {**CAPSNET, "inducing": 6},
    "frms_capsnet": {"widths": [4, 4], "types": 2, "dim": 3, "img_size": 32},
    "frem_capsnet": {"widths": [4, 4], "types": 2, "dim": 3, "img_size": 32},
    "ar_capsnet": {"width": 4, "types": 3, "primary_dim": 2, "dim": 4, "img_size": 9},
    "ar_capsnet_cifar10": {"width": 4, "types": 3, "primary_dim": 2, "dim": 4, "img_size": 9},
    "efficient_capsnet": {"widths": [8, 8, 8, 16], "img_size": 13, "primary_dim": 4},
    "efficient_capsnet_smallnorb": {"widths": [8, 8, 8, 16], "img_size": 25, "primary_dim": 4},
    "heinsen_smallnorb": {**NORB, "width": 4, "types": 3, "parents": 4, "side": 2},
    "self_routing_1": {"width": 2, "blocks": 1, "types": 3, "dim": 4, "img_size": 9},
    "self_routing_2": {"width": 2, "blocks": 1, "types": 3, "dim": 4, "img_size": 9},
    **{name: MATRIX for name in PEERS if name.startswith(("em_", "vb_", "star"))},
}
# What comes before a normalisation over the batch that takes all shifts away again.
SHIFTS = [("VBCapsNet", name) for name in ("beta_u", "beta_a")]


def build(name: str, **settings: Any) -> ImageClassifier:
    return cc.create_model(name, **{**SMALL.get(name, {}), **settings})


def images_for(model: ImageClassifier, batch: int = 2) -> torch.Tensor:
    return torch.rand(batch, model.in_chans, *model.img_size)


@pytest.fixture(params=cc.list_models())
def model(request: pytest.FixtureRequest) -> ImageClassifier:
    return build(request.param)


def test_forward_is_head_of_features(model: ImageClassifier) -> None:
    model.eval()
    images = images_for(model)
    logits = model(images)
    assert logits.shape == (2, model.num_classes)
    features = model.forward_features(images)
    torch.testing.assert_close(model.forward_head(features), logits)
    assert model.forward_head(features, pre_logits=True).ndim == 2


def test_every_parameter_learns(model: ImageClassifier) -> None:
    # What starts at zero, such as the gates of self-routing, lets no gradient through at first.
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    images = images_for(model)
    loss, scores = model.training_loss(TrainingBatch(images, torch.tensor([0, 1]), images))
    assert loss.shape == (2,)
    assert scores.shape == (2, model.num_classes)
    loss.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert_finite(name, parameter.grad)
        # A shift that all class capsules share changes no probability, and so cannot learn.
        shared = (type(model).__name__, name) == ("ClassCapsuleNet", "head.bias")
        if not shared and (type(model).__name__, name.rpartition(".")[2]) not in SHIFTS:
            assert parameter.grad.abs().sum() > 0, name


def test_reset_classifier(model: ImageClassifier) -> None:
    model.reset_classifier(3)
    model.eval()
    assert model.num_classes == 3
    assert model(images_for(model)).shape == (2, 3)
    assert model.settings["num_classes"] == 3


def test_wrong_images_are_refused(model: ImageClassifier) -> None:
    height, width = model.img_size
    with pytest.raises(ValueError, match=rf"expected images \[batch, {model.in_chans}, {height}"):
        model(torch.rand(2, model.in_chans + 1, height, width))
    with pytest.raises(ValueError, match="resize or pad"):
        model(torch.rand(2, model.in_chans, height + 1, width))


def test_presets_hold_json_plain_settings() -> None:
    for preset in PRESETS.values():
        known = inspect.signature(preset.network.__init__).parameters
        for setting, value in preset.settings.items():
            assert setting in known
            assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize("name", ["m1", "m4", "s1", "s4", "affine_capsules", "class_capsules"])
def test_c_n_k_d_can_be_overridden(name: str) -> None:
    size = 28 if name == "class_capsules" else 8
    model: Any = build(name, channels=2, clusters=3, votes=2, dim=5, img_size=size).eval()
    first, second, *_ = model.capsules.layers
    assert (first.in_channels, first.clusters) == (1, 6)
    assert (second.in_channels, second.clusters, second.votes, second.in_dim) == (2, 3, 2, 5)
    assert model(images_for(model)).shape == (2, 10)


@pytest.mark.parametrize("size", [1, 5, 28, 33, (17, 40)])
@pytest.mark.parametrize("name", ["m1", "s1", "baseline_cnn", "affine_capsules", "affine_cnn"])
def test_any_image_size(name: str, size: int | tuple[int, int]) -> None:
    model = build(name, img_size=size)
    images = images_for(model, 1)
    features = model.forward_features(images)
    assert model.forward_head(features).shape == (1, 10)
    if name.startswith("affine"):
        assert model.reconstruct(features).shape == images.shape


@pytest.mark.parametrize("size", [25, 28, 32])
def test_class_capsules_sizes(size: int) -> None:
    model = build("class_capsules", img_size=size).eval()
    assert model.forward_features(images_for(model)).shape == (2, 10, 8)


def test_a_vanishing_map_names_layer_and_smallest_size() -> None:
    with pytest.raises(ValueError, match=r"layer 5 of 5, whose input is 2x2.*least 25x25"):
        build("class_capsules", img_size=24)
    with pytest.raises(ValueError, match="25 to 32"):
        build("class_capsules", img_size=33)
    with pytest.raises(ValueError, match="second pooling.*4x4"):  # noqa: RUF043
        build("viewpoint_cnn", img_size=3)
    build("viewpoint_cnn", img_size=4)


def test_class_capsules_masking() -> None:
    model = build("class_capsules").eval()
    images = images_for(model)
    capsules = model.forward_features(images)
    predicted = model(images).argmax(1)
    torch.testing.assert_close(model.reconstruct(capsules), model.reconstruct(capsules, predicted))
    changed = capsules.clone()
    other = (predicted + 1) % 10
    changed[torch.arange(2), other] += 1
    torch.testing.assert_close(
        model.reconstruct(changed, predicted), model.reconstruct(capsules, predicted)
    )
    assert not model.reconstruct(changed, other).equal(model.reconstruct(capsules, other))
    assert model.reconstruct(capsules).min() >= 0
    assert model.reconstruct(capsules).max() <= 1
    model.train()
    with pytest.raises(ValueError, match="pass labels"):
        model.reconstruct(capsules)


def test_traces_of_all_layers() -> None:
    model: Any = build("m1", in_chans=1, img_size=8).eval()
    images = images_for(model)
    capsules, traces = model.forward_features(images, trace=True)
    torch.testing.assert_close(capsules, model.forward_features(images))
    assert [t.weights.shape[-1] for t in traces] == [8, 4, 4, 2, 2]
    assert all(t.votes.shape[1:3] == (4, 5) for t in traces)


def test_uniform_routing_changes_the_network_not_its_size() -> None:
    torch.manual_seed(0)
    data_dependent = build("m1", img_size=8)
    torch.manual_seed(0)
    uniform = build("m1", img_size=8, routing="uniform")
    images = images_for(uniform)
    assert not data_dependent(images).allclose(uniform(images))
    assert [p.shape for p in uniform.parameters()] == [p.shape for p in data_dependent.parameters()]


def test_no_head() -> None:
    model = build("m1", num_classes=0, img_size=8)
    assert model(images_for(model)).shape == (2, 4 * 6 * 2 * 2)


def test_bad_names_and_settings() -> None:
    with pytest.raises(KeyError, match="unknown model 'm11'; did you mean 'm1'"):
        cc.create_model("m11")
    with pytest.raises(KeyError, match="did you mean 'baseline_cnn'"):
        cc.create_model("baseline-cnn")
    with pytest.raises(
        ValueError, match="model 'm1': unknown setting 'vote'; did you mean 'votes'"
    ):
        cc.create_model("m1", vote=3)
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 0, got -1"):
        cc.create_model("m1", num_classes=-1)
    with pytest.raises(KeyError, match="unknown stem"):
        cc.create_model("m1", stem="vgg")
    assert cc.list_models("m?") == ["m1", "m2", "m3", "m4"]
    assert isinstance(cc.create_model("s2"), CapsuleNet)


@pytest.mark.parametrize("routing", [n for n in cc.list_routings() if n != "self_routing"])
def test_any_routing_is_a_drop_in(routing: str) -> None:
    model = cc.create_model("m1", routing=routing, in_chans=1, img_size=8)
    images = torch.rand(2, 1, 8, 8)
    loss, logits = model.training_loss(TrainingBatch(images, torch.tensor([0, 1]), images))
    loss.sum().backward()
    assert logits.shape == (2, 10)
    for name, parameter in model.named_parameters():
        assert_finite(name, parameter, parameter.grad)


def test_self_routing_is_not_a_drop_in() -> None:
    with pytest.raises(ValueError, match="needs the pose of each child"):
        cc.create_model("m1", routing="self_routing")
