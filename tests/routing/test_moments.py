"""Moments in closed form against the formulas that autograd differentiates itself."""

from collections.abc import Callable

import pytest
import torch
from helpers.derivatives import FORMS
from torch import Tensor

from clustercaps.functional import em_route, vb_route
from clustercaps.routing import Routed, moments, vote_chunks


def plain_sum(weights: Tensor, votes: Tensor) -> Tensor:
    return (weights.unsqueeze(3) * votes).sum(1)


def plain_squares(weights: Tensor, votes: Tensor, mean: Tensor) -> Tensor:
    return (weights.unsqueeze(3) * (votes - mean.unsqueeze(1)).square()).sum(1)


def plain_distance(votes: Tensor, mean: Tensor, precision: Tensor) -> Tensor:
    return (precision.unsqueeze(1) * (votes - mean.unsqueeze(1)).square()).sum(3)


def arguments(name: str, batch: int, positions: tuple[int, ...]) -> list[Tensor]:
    pair, parent = (batch, 4, 3, *positions), (batch, 3, 5, *positions)
    votes = (batch, 4, 3, 5, *positions)
    shapes = {
        "sum": (pair, votes),
        "squares": (pair, votes, parent),
        "distance": (votes, parent, parent),
    }
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes[name]]


PAIRS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "sum": (moments.weighted_sum, plain_sum),
    "squares": (moments.weighted_squares, plain_squares),
    "distance": (moments.weighted_distance, plain_distance),
}


@pytest.mark.parametrize("positions", [(), (2, 3)])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients(
    name: str, batch: int, positions: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two images of these at a time, so that the last chunk of three is a smaller one.
    monkeypatch.setattr(vote_chunks, "CHUNK", 2 * 4 * 3 * 5 * 8 * len(torch.ones(positions).flatten()))
    fast, plain = PAIRS[name]
    given = arguments(name, batch, positions)
    got, right = fast(*given), plain(*given)
    torch.testing.assert_close(got, right)
    pull = torch.randn_like(right)
    grads = torch.autograd.grad(got, given, pull)
    for actual, expected in zip(grads, torch.autograd.grad(right, given, pull), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", PAIRS)
def test_gradcheck(name: str) -> None:
    torch.autograd.gradcheck(PAIRS[name][0], arguments(name, 2, (2,)))


@pytest.mark.parametrize("name", PAIRS)
def test_nothing_of_the_size_of_the_votes_is_kept(name: str) -> None:
    given = arguments(name, 3, (2, 3))
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        PAIRS[name][0](*given)
    assert {t.data_ptr() for t in kept} <= {t.data_ptr() for t in given}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PAIRS)
def test_derivatives_in_every_form(name: str, form: str) -> None:
    given = [t.detach() for t in arguments(name, 1, ())]
    fast, plain = (FORMS[form](function, given) for function in PAIRS[name])
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("route", [em_route, vb_route])
def test_routings_that_use_them(
    route: Callable[..., Routed], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = ((1, 3, 2, 2), (1, 3), (2,), (2,))
    given = [torch.rand(shape, generator=draw, dtype=torch.float64) for shape in shapes]

    def capsules(*inputs: Tensor) -> Tensor:
        routed = route(*inputs, iterations=2)
        return torch.cat([routed.capsules, routed.activations.unsqueeze(2)], 2)

    fast = FORMS[form](capsules, given)
    monkeypatch.setattr(moments, "_plain", lambda: True)
    torch.testing.assert_close(fast, FORMS[form](capsules, given), rtol=1e-8, atol=1e-8)
