"""The engine in JavaScript against PyTorch, on the same weights and images."""

from typing import Any

import pytest
import torch
from helpers.javascript import Run, encode
from safetensors.torch import load_file
from torch import Tensor

from clustercaps import create_model
from clustercaps.experiments.harness.transformations import names, transform
from clustercaps.explore.content import network, pack_weights
from clustercaps.explore.sources import Source, kind_of, open_source
from clustercaps.layers import ClusterCapsules2d
from clustercaps.models import ImageClassifier
from clustercaps.training.preprocessing import preprocessing_of

CLOSE = {"rtol": 1e-4, "atol": 1e-4}

ODD = {"img_size": (21, 26), "in_chans": 3, "num_classes": 7, "channels": 3, "dim": 5}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "one vote": ("m1", {**ODD, "votes": 1, "dim": 3}),
    "seven votes": ("m1", {**ODD, "votes": 7, "clusters": 2}),
    "one channel": ("s1", {"img_size": 9, "in_chans": 1, "clusters": 3, "dim": 2}),
    "uniform": ("m1", {"img_size": 12, "in_chans": 1, "dim": 3, "routing": "uniform"}),
    "class capsules": ("class_capsules", {"img_size": (25, 31), "dim": 3, "num_classes": 4}),
    "class capsules, colour": ("class_capsules", {"in_chans": 3, "dim": 2, "channels": 2}),
    "affine capsules": ("affine_capsules", {"img_size": (15, 18), "dim": 3}),
    "affine CNN": ("affine_cnn", {"img_size": (13, 16), "in_chans": 3}),
}
FORWARD = """
const network = new exported.Network(data.network);
return data.images.map((image, number) => {
  const found = network.forward(floats(image), data.routing);
  // The layers of all of 200 images would be hundreds of megabytes.
  if (data.only !== undefined && number !== data.only) return found;
  const drawn = network.decoder && network.decode(network.features, data.label);
  const layers = network.states.map(({ capsules, weights }) => ({ capsules: capsules.slice(),
    weights: weights?.slice() }));
  return { ...found, drawn, layers };
});
"""


def random_network(name: str, settings: dict[str, Any]) -> ImageClassifier:
    """A network whose norms and biases are not trivial, with weights as the page stores them."""
    model = create_model(name, **settings).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.load_state_dict({key: value.float() for key, value in pack_weights(model).items()})
    return model


def as_record(model: ImageClassifier) -> dict[str, Any]:
    classes = tuple(map(str, range(model.num_classes)))
    data = "cifar10" if model.in_chans == 3 else "mnist"
    model.preprocessing = preprocessing_of(data, model.img_size[0], classes)
    return network(Source("x", "x", kind_of(model, "x"), model, classes, data, {}))


def run_torch(model: ImageClassifier, images: Tensor) -> list[dict[str, Tensor]]:
    """Capsules and routing weights of every layer."""
    if not hasattr(model, "capsules"):
        found = []
        for conv in model.convs:
            images = conv(images).relu()
            found.append({"capsules": images})
        return found
    capsules, found = images.unsqueeze(1), []
    for layer in model.capsules.layers:
        capsules, trace = layer(capsules, trace=True)
        found.append({"capsules": capsules, "weights": trace.weights})
    return found


@pytest.mark.parametrize("case", NETWORKS)
@torch.no_grad()
def test_networks_agree_with_torch(case: str, run_js: Run) -> None:
    name, settings = NETWORKS[case]
    model = random_network(name, settings)
    record = as_record(model)
    pixels = torch.rand(2, model.in_chans, *model.img_size)
    mean, sd = (torch.tensor(record["input"][key]).view(-1, 1, 1) for key in ("mean", "sd"))
    images = (pixels - mean) / sd
    label = 1
    data = {"network": record, "images": [encode(image) for image in pixels], "label": label}
    answers = run_js("engine/network.js", FORWARD, data)
    expected, layers = model(images), run_torch(model, images)
    for n, answer in enumerate(answers):
        torch.testing.assert_close(answer["logits"], expected[n], **CLOSE)
        torch.testing.assert_close(answer["probabilities"], expected[n].softmax(0), **CLOSE)
        assert answer["prediction"] == int(expected[n].argmax())
        for theirs, ours in zip(answer["layers"], layers, strict=True):
            for key, tensor in ours.items():
                torch.testing.assert_close(theirs[key], tensor[n].flatten(), **CLOSE)
        if hasattr(model, "reconstruct"):
            features = model.forward_features(images)
            labels = [torch.full((2,), label)] if "class" in name else []
            drawn = model.reconstruct(features, *labels)
            torch.testing.assert_close(answer["drawn"], drawn[n].flatten(), **CLOSE)


@torch.no_grad()
def test_packaged_m1_predicts_the_same_for_200_test_images(run_js: Run) -> None:
    source = open_source("m1:fashion-mnist")
    assert source.stored is not None
    pixels = source.prepare.scale(load_file(source.stored)["pixels"])
    pixels = torch.nn.functional.pad(pixels, (2, 2, 2, 2))
    assert len(pixels) == 200
    images = source.prepare.normalise(pixels.clone())
    data = {"network": network(source), "images": [encode(image) for image in pixels]}
    # Fewer with the other routing, for time.
    for routing, count in (("cluster", 200), ("uniform", 20)):
        for layer in source.model.capsules.layers:
            layer.routing = routing
        expected, data["images"] = source.model(images[:count]), data["images"][:count]
        answers = run_js("engine/network.js", FORWARD, {**data, "routing": routing, "only": 7})
        found = torch.tensor([answer["prediction"] for answer in answers])
        assert torch.equal(found, expected.argmax(1))
        logits = torch.stack([answer["logits"] for answer in answers])
        torch.testing.assert_close(logits, expected, **CLOSE)
        layers = run_torch(source.model, images[7:8])
        for theirs, ours in zip(answers[7]["layers"], layers, strict=True):
            for key, tensor in ours.items():
                torch.testing.assert_close(theirs[key], tensor.flatten(), **CLOSE)


LAYER = """
const { weight, bias, scale, shift, shape, input } = data;
const norm = scale && { weight: floats(scale), bias: floats(shift) };
const layer = new exported.CapsuleLayer(shape, floats(weight), floats(bias), norm);
const state = layer.newState();
layer.run(floats(input), data.routing, state);
return { ...state, place: layer.inspect(floats(input), data.routing, data.place) };
"""


@pytest.mark.parametrize("routing", ["cluster", "uniform"])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(1, 1, 0), (5, 2, 0), (4, 3, 2), (3, 1, 3)]
)
@torch.no_grad()
def test_layers_of_any_window_agree(
    kernel: int, stride: int, padding: int, routing: str, run_js: Run
) -> None:
    window = {"kernel_size": kernel, "stride": stride, "padding": padding}
    layer = ClusterCapsules2d(2, 3, 3, 2, 4, 3, in_size=(9, 7), routing=routing, **window)
    layer.norm.weight.data.uniform_(-1, 1)
    height, width = layer.out_size((9, 7))
    shape = {"channels": 3, "dim": 2, "votes": 4, "clusters": 6, "inChannels": 2, "inDim": 3}
    shape |= {"inHeight": 9, "inWidth": 7, "height": height, "width": width, "norm": True}
    shape |= {"kernel": kernel, "stride": stride, "padding": padding}
    children = torch.randn(1, 2, 3, 9, 7)
    place = {"y": height - 1, "x": 0, "channel": 2, "dim": 1}
    numbers = {"weight": layer.vote.weight, "bias": layer.vote.bias, "input": children}
    numbers |= {"scale": layer.norm.weight, "shift": layer.norm.bias}
    data = {key: encode(tensor) for key, tensor in numbers.items()}
    answer = run_js(
        "engine/capsules.js", LAYER, {**data, "shape": shape, "routing": routing, "place": place}
    )
    capsules, trace = layer(children, trace=True)
    torch.testing.assert_close(answer["capsules"], capsules.flatten(), **CLOSE)
    torch.testing.assert_close(answer["weights"], trace.weights.flatten(), **CLOSE)
    at = (..., 2, 1, height - 1, 0)
    for key, tensor in (
        ("votes", trace.votes),
        ("centroids", trace.centroids),
        ("spreads", trace.spread),
        ("weights", trace.weights),
    ):
        torch.testing.assert_close(answer["place"][key], tensor[at].flatten(), **CLOSE)
    raw = (trace.weights * trace.centroids).sum(1)
    assert answer["place"]["capsule"] == pytest.approx(float(raw[at]), abs=1e-5)
    assert (answer["place"]["k"], answer["place"]["clusters"]) == (4, 6)


TRANSFORMS = """
return exported.PRESETS.map((preset) => ({ name: preset.name, out:
  exported.transformMaps(floats(data.maps), 2, 9, 6, preset, data.unit) }));
"""


@pytest.mark.parametrize("unit", [1, 2])
def test_transformations_are_those_of_the_experiment(unit: int, run_js: Run) -> None:
    maps = torch.rand(1, 2, 9, 6)
    answers = run_js("engine/transforms.js", TRANSFORMS, {"maps": encode(maps), "unit": unit})
    assert [answer["name"] for answer in answers] == names()
    for answer in answers:
        expected = transform(maps, answer["name"], float(unit))
        torch.testing.assert_close(answer["out"], expected.flatten(), **CLOSE)


TRANSFORM = """
const network = new exported.Network(data.network);
network.forward(floats(data.image));
return network.transform({ kind: "shift", amount: 1 });
"""


@torch.no_grad()
def test_shifted_channels_are_compared_with_the_image_shifted_by_their_stride(run_js: Run) -> None:
    model = random_network("affine_capsules", {"img_size": 14})
    pixels = torch.rand(1, 1, 14, 14)
    record = as_record(model)
    answer = run_js("engine/network.js", TRANSFORM, {"network": record, "image": encode(pixels)})
    features = model.forward_features((pixels - 0.1307) / 0.3081)
    drawn = model.reconstruct(transform(features.flatten(1, 2), "Shift-1"))
    target = transform(pixels, "Shift-1", 2.0)
    torch.testing.assert_close(answer["pixels"], drawn.flatten(), **CLOSE)
    torch.testing.assert_close(answer["target"], target.flatten(), **CLOSE)
    assert answer["error"] == pytest.approx(float((drawn - target).square().mean()), rel=1e-3)


SENSITIVITY = """
const { Network, Sensitivity } = exported;
const network = new Network(data.network);
network.forward(floats(data.image));
const work = new Sensitivity(network, data.place);
while (work.next());
return work.change;
"""


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_sensitivity_is_close_to_the_gradient(layer: int, run_js: Run) -> None:
    model = random_network("m1", {"img_size": (9, 8), "in_chans": 3, "dim": 3})
    record = as_record(model)
    pixels = torch.rand(1, 3, 9, 8, requires_grad=True)
    mean, sd = (torch.tensor(record["input"][key]).view(-1, 1, 1) for key in ("mean", "sd"))
    place = {"layer": layer, "y": 1, "x": 1, "channel": 2, "dim": 1, "cluster": 3}
    data = {"network": record, "image": encode(pixels), "place": place}
    change = run_js("engine/network.js engine/sensitivity.js", SENSITIVITY, data)
    capsules = ((pixels - mean) / sd).unsqueeze(1)
    for number in range(layer + 1):
        capsules, trace = model.capsules.layers[number](capsules, trace=True)
    trace.weights[0, 3, 2, 1, 1, 1].backward()
    assert pixels.grad is not None
    gradient = pixels.grad.sum((0, 1)).flatten()
    assert gradient.abs().max() > 1e-3
    # Differences over a step of 1/64, so only roughly the gradient.
    assert (change - gradient).norm() < 0.1 * gradient.norm()
    if layer == 0:
        assert (change != 0).sum() <= 9


def test_missing_and_misshapen_tensors_are_named(run_js: Run) -> None:
    model = random_network("m1", {"img_size": 9, "in_chans": 1})
    record = as_record(model)
    record["layers"][1]["votes"] = 6
    renamed = as_record(model)
    renamed["layers"] = [*renamed["layers"], renamed["layers"][-1]]
    body = """return data.map((record) => {
      try { new exported.Network(record); return null; } catch (error) { return error.message; }
    });"""
    messages = run_js("engine/network.js", body, [record, renamed, as_record(model)])
    assert "capsules.layers.1.vote.weight has the shape [480,6,3,3], the network" in messages[0]
    assert "no tensor capsules.layers.5.vote.weight" in messages[1]
    assert messages[2] is None
