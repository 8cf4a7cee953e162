"""Routing without votes against the equations of Heinsen's routing, written out."""

from collections.abc import Callable

import pytest
import torch
from helpers.derivatives import FORMS
from torch import Tensor

from clustercaps.functional import heinsen_route
from clustercaps.layers import HeinsenCapsules
from clustercaps.routing import Routed, heinsen_shared
from clustercaps.routing.heinsen_shared import heinsen_route_shared, shared_votes

EPS = 1e-5


def plain_route(
    votes: Tensor, scores: Tensor, use: Tensor, ignore: Tensor, iterations: int = 3
) -> Routed:
    """The equations, with every intermediate result as a tensor."""
    there = scores.sigmoid().unsqueeze(2)
    coupling = torch.full_like(votes[:, :, :, 0], 1 / votes.shape[2])
    for step in range(iterations):
        used = there * coupling
        activations = (use * used - ignore * (there - used)).sum(1)
        share = used / (used.sum(1, keepdim=True) + EPS)
        capsules = torch.einsum("bij,bijd->bjd", share, votes)
        if step < iterations - 1:
            distance = (votes - capsules.unsqueeze(1)).square()
            variance = torch.einsum("bij,bijd->bjd", share, distance) + EPS
            closeness = -torch.einsum("bijd,bjd->bij", distance, 0.5 / variance)
            prior = torch.nn.functional.logsigmoid(activations) - 0.5 * variance.log().sum(2)
            coupling = (prior.unsqueeze(1) + closeness).softmax(2)
    return Routed(capsules, activations, coupling)


def plain_shared(
    poses: Tensor, scores: Tensor, weight: Tensor, bias: Tensor, use: Tensor, ignore: Tensor,
    iterations: int = 3,
) -> Routed:  # fmt: skip
    votes = torch.einsum("bird,jdh->bijrh", poses, weight) + bias
    return plain_route(votes.flatten(3), scores, use, ignore, iterations)


PAIR: tuple[Callable[..., Routed], ...] = (heinsen_route_shared, plain_shared)


def inputs(batch: int = 3, children: int = 7, parents: int = 4, side: int = 3) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = [(batch, children, side, side), (batch, children), *[(parents, side, side)] * 2]
    shapes += [(1, parents)] * 2
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]


def far_clusters() -> list[Tensor]:
    """Children in tight groups far from 0: variances of 1e-4 around votes of 10."""
    given = inputs(batch=2, children=60)
    groups = 10 * given[0][:, :4].repeat(1, 15, 1, 1)
    # Rounded, so that float32 holds them exactly.
    return [t.float().double() for t in (groups + 0.01 * given[0], *given[1:])]


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_values_and_gradients(batch: int, iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two images at a time, so that the last chunk of three is a smaller one.
    monkeypatch.setattr(heinsen_shared, "CHUNK", 2 * 7 * 4 * 8)
    given = [t.requires_grad_() for t in inputs(batch)]
    got, right = (route(*given, iterations=iterations) for route in PAIR)
    torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-10)
    # Equal coupling coefficients have no gradient.
    used = slice(None) if iterations > 1 else slice(2)
    for parts in (slice(1), slice(1, 2), used):
        grads = (
            torch.autograd.grad(
                torch.stack([each.pow(3).sum() for each in routed[parts]]).sum(),
                given,
                retain_graph=True,
                materialize_grads=True,
            )
            for routed in (got, right)
        )
        for actual, expected in zip(*grads, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_votes_of_the_plain_path() -> None:
    poses, scores, weight, bias, use, ignore = inputs()
    votes = shared_votes(poses, weight, bias)
    expected = plain_shared(poses, scores, weight, bias, use, ignore)
    torch.testing.assert_close(heinsen_route(votes, scores, use, ignore), expected)


def test_gradcheck() -> None:
    given = [t.requires_grad_() for t in inputs(batch=1, children=3, parents=2, side=2)]
    assert torch.autograd.gradcheck(lambda *x: heinsen_route_shared(*x)[:2], given)


@pytest.mark.parametrize("case", [inputs, far_clusters])
def test_float32_is_closer_than_with_votes(case: Callable[[], list[Tensor]]) -> None:
    exact_input = [t.float().double() for t in case()]
    exact = plain_shared(*exact_input)
    single = [t.float() for t in exact_input]
    got, plain = heinsen_route_shared(*single), plain_shared(*single)
    for value, other, right in zip(got, plain, exact, strict=True):
        assert value.dtype == torch.float32
        error, usual = ((each - right).abs().max() for each in (value, other))
        # One rounding of the result.
        assert error <= max(usual, 1e-7 * right.abs().max())


def test_far_clusters_in_float64() -> None:
    given = far_clusters()
    got, right = heinsen_route_shared(*given), plain_shared(*given)
    torch.testing.assert_close(got, right, rtol=1e-8, atol=1e-8)


def routed_votes(route: Callable[..., Routed]) -> Callable[..., Tensor]:
    """A routing as a function to one tensor."""

    def results(*tensors: Tensor) -> Tensor:
        routed = route(*tensors, iterations=2)
        return torch.cat([routed.capsules, routed.activations.unsqueeze(2)], 2)

    return results


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("from_votes", [False, True])
def test_derivatives_in_every_form(form: str, from_votes: bool) -> None:
    given = inputs(batch=1, children=3, parents=2, side=2)
    pair = PAIR
    if from_votes:
        poses, scores, weight, bias, *gains = given
        pair = (heinsen_route, plain_route)
        given = [shared_votes(poses, weight, bias), scores, *gains]
    fast, plain = (FORMS[form](routed_votes(route), given) for route in pair)
    torch.testing.assert_close(fast, plain, rtol=1e-8, atol=1e-8)


def test_half_precision_routes_in_full() -> None:
    layer = HeinsenCapsules(7, 4, 3, 3, shared=True)
    poses, scores = (t.float() for t in inputs()[:2])
    exact = layer(poses, scores)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = layer(poses, scores)
    torch.testing.assert_close(mixed, exact)


def test_hooks_on_the_routing_are_called() -> None:
    layer = HeinsenCapsules(7, 4, 3, 3, shared=True)
    poses, scores = (t.float() for t in inputs()[:2])
    expected, seen = layer(poses, scores), []
    layer.routing.register_forward_hook(lambda module, args, result: seen.append(args))
    torch.testing.assert_close(layer(poses, scores), expected)
    assert seen[0][0].shape == (3, 7, 4, 9)
