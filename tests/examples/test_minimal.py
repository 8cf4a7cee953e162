"""Cluster routing from scratch is the cluster routing of the library."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import clustercaps as cc

PATH = Path(__file__).parent.parent.parent / "examples" / "minimal.py"


@pytest.fixture(scope="module")
def minimal() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minimal", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_needs_only_torch_and_is_short() -> None:
    text = PATH.read_text()
    assert "clustercaps" not in text
    assert len(text.splitlines()) < 120


def test_routing_has_the_same_values(minimal: ModuleType) -> None:
    votes = torch.randn(2, 3, 4, 2, 5, dtype=torch.float64)
    expected, _ = cc.functional.cluster_route(votes)
    assert torch.allclose(minimal.cluster_route(votes), expected, atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2])
def test_layer_has_the_same_values_and_gradients(minimal: ModuleType, stride: int) -> None:
    layer = minimal.ClusterCapsules((2, 3), (4, 5), votes=3, size=6, clusters=2, stride=stride)
    ours = cc.ClusterCapsules2d(
        2, 4, 3, 5, votes=3, clusters=2, stride=stride, in_size=6, backend="reference"
    )
    layer, ours = layer.double(), ours.double()
    ours.load_state_dict(layer.state_dict())
    children = torch.randn(2, 2, 4, 6, 6, dtype=torch.float64)
    found, expected = layer(children), ours(children)
    assert torch.allclose(found, expected, atol=1e-10)
    found.square().sum().backward()
    expected.square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert torch.allclose(parameter.grad, ours.get_parameter(name).grad, atol=1e-8), name


def test_network_has_the_same_values(minimal: ModuleType) -> None:
    network = minimal.CapsuleNet(classes=3, size=9, channels=2, votes=3, dim=4)
    ours = cc.models.CapsuleNet(3, 1, 9, channels=2, votes=3, dim=4)
    renamed = {k.replace("layers.", "capsules.layers."): v for k, v in network.state_dict().items()}
    ours.load_state_dict(renamed)
    images = torch.rand(2, 1, 9, 9)
    assert torch.allclose(network(images), ours(images), atol=1e-4)
