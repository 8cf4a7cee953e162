"""Initial weights have the standard deviation that the authors' code gives them."""

import math

import pytest
import torch
from torch import nn

import clustercaps as cc


def sd(tensor: torch.Tensor) -> float:
    return float(tensor.detach().double().std())


def glorot(fan_in: int, fan_out: int) -> float:
    return math.sqrt(2 / (fan_in + fan_out))


def he(fan_in: int) -> float:
    return math.sqrt(2 / fan_in)


def torch_default(fan_in: int) -> float:
    return 1 / math.sqrt(3 * fan_in)


def test_efficient_capsnet_depthwise_primary() -> None:
    primary = cc.create_model("efficient_capsnet").primary
    assert sd(primary.weight) == pytest.approx(0.0138, rel=0.02)
    assert sd(primary.weight) == pytest.approx(glorot(81, 81 * 128), rel=0.02)
    assert not primary.bias.any()


def test_ar_capsnet_attention_and_activation() -> None:
    model = cc.create_model("ar_capsnet")
    layer = model.capsules[0]
    # Keras' fans of [1, 1, dim, in, in * out]: the first three axes are a window.
    assert sd(layer.routing.weight) == pytest.approx(glorot(8 * 32, 8 * 32 * 8), rel=0.02)
    assert sd(model.classes.routing.weight) == pytest.approx(glorot(256, 2560), rel=0.02)
    assert sd(layer.activation.weight) == pytest.approx(glorot(32, 32 * 8), rel=0.03)
    assert sd(model.primary_activation.weight) == pytest.approx(glorot(16, 16 * 8), rel=0.04)
    assert sd(layer.vote.weight) == pytest.approx(glorot(9 * 16, 9 * 8 * 32 * 8), rel=0.02)
    for conv in (model.stem[0], model.stem[3], model.primary, layer.vote):
        assert not conv.bias.any()


def test_heinsen_convolutions() -> None:
    model = cc.create_model("heinsen_smallnorb")
    convs = [layer for layer in model.layers if isinstance(layer, nn.Conv2d)]
    assert len(convs) == 6
    assert sd(convs[0].weight) == pytest.approx(he(36), rel=0.06)
    for conv in convs[1:]:
        assert sd(conv.weight) == pytest.approx(0.059, rel=0.03)
    assert not any(conv.bias.any() for conv in convs)
    # The author leaves the 1x1 convolutions to PyTorch.
    assert sd(model.pose[1].weight) == pytest.approx(torch_default(64), rel=0.02)


def test_self_routing_convolutions() -> None:
    model = cc.create_model("self_routing_1")
    assert sd(model.pose[0].weight) == pytest.approx(0.059, rel=0.02)
    assert sd(model.activation[0].weight) == pytest.approx(he(64 * 9), rel=0.03)
    # Uniform, as the authors have it: a normal distribution would reach further.
    assert model.pose[0].weight.abs().max() <= math.sqrt(6 / 576)
    assert sd(model.front.blocks[-1].conv2.weight) == pytest.approx(he(576), rel=0.02)


def test_inverted_resnet_is_pytorchs() -> None:
    front = cc.create_model("inverted_attention_resnet").front
    assert sd(front.blocks[-1].conv2.weight) == pytest.approx(torch_default(1152), rel=0.02)
    assert sd(front.blocks[3].shortcut[0].weight) == pytest.approx(torch_default(64), rel=0.03)


def test_em_thresholds_in_the_authors_units() -> None:
    model = cc.create_model("em_smallnorb")
    # Their biases are 0.5 and 1, times 5000; our cost is half of theirs, and lambda twice.
    for layer in model.layers:
        assert torch.equal(layer.routing.beta_a, torch.full((32,), -1250.0))
        assert layer.routing.final_lambda == pytest.approx(2 * 0.01)
    assert torch.equal(model.classes.routing.beta_a, torch.full((5,), -2500.0))
    assert model.classes.routing.final_lambda == pytest.approx(2 * 0.01 / 4)
