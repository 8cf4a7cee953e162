"""The helpers must fail on routings that break the rules, or they prove nothing."""

import pytest
import torch
from torch import Tensor, nn

from clustercaps.layers.cluster import ClusterCapsules2d
from clustercaps.routing import Routed, Routing
from clustercaps.routing.cluster import ClusterRouting
from clustercaps.routing.dynamic import DynamicRouting
from clustercaps.testing import (
    assert_close,
    assert_finite,
    assert_matches_reference,
    assert_routing_contract,
    equivariance_error,
)


class PaperForm(ClusterRouting):
    """The paper's formula to the letter: log 0 where all votes agree."""

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        clusters = votes.unflatten(1, (-1, 2))
        weights = (-clusters.std(2, correction=0).log()).softmax(1)
        return Routed(
            (weights * clusters.mean(2)).sum(1), None, weights.repeat_interleave(2, 1) / 2
        )


class FirstChildOnly(DynamicRouting):
    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        coupling = torch.ones_like(votes[:, :, :, 0]) / votes.shape[2]
        return Routed(votes[:, 0], None, coupling)


class SoftmaxOverTheWrongAxis(DynamicRouting):
    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        coupling = votes.sum(3).softmax(1)
        return Routed(torch.einsum("bij...,bijd...->bjd...", coupling, votes), None, coupling)


@pytest.mark.parametrize(
    ("routing", "complaint"),
    [
        (PaperForm, "not finite"),
        (FirstChildOnly, "not close"),
        (SoftmaxOverTheWrongAxis, "sum to 1 over the parents"),
    ],
)
def test_contract_catches(routing: type[Routing], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        assert_routing_contract(lambda: routing(6, 3, 4))


def test_close_and_finite_catch() -> None:
    with pytest.raises(AssertionError, match="relative error"):
        assert_close("x", torch.ones(3), torch.ones(3) * 1.01, 1e-3)
    with pytest.raises(AssertionError, match="relative error"):
        assert_close("x", torch.full((3,), float("nan")), torch.ones(3), 1e-3)
    with pytest.raises(AssertionError, match="2 of 3"):
        assert_finite("x", torch.tensor([1.0, float("nan"), float("inf")]))


def test_reference_comparison_sees_a_wrong_gradient() -> None:
    class WrongGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.square()

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            return grad

    x = torch.randn(5, requires_grad=True)
    assert_matches_reference(torch.square, torch.square, [x])
    with pytest.raises(AssertionError, match="gradient 0"):
        assert_matches_reference(WrongGradient.apply, torch.square, [x])


def test_equivariance_to_shifts_but_not_to_turns() -> None:
    layer = ClusterCapsules2d(2, 3, 2, 3, votes=3, norm=False).double()
    x = torch.randn(1, 2, 3, 12, 12, dtype=torch.float64)
    shifted = equivariance_error(layer, x, lambda maps: maps.roll(1, -1), margin=2)
    turned = equivariance_error(layer, x, lambda maps: maps.rot90(1, (-2, -1)), margin=2)
    assert shifted < 1e-12
    assert turned > 0.1
    assert equivariance_error(nn.ReLU(), x, lambda maps: maps.rot90(1, (-2, -1))) == 0
