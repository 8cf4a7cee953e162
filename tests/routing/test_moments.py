"""Moments in closed form against the formulas that autograd differentiates itself."""

from collections.abc import Callable

import pytest
import torch
from helpers.derivatives import FORMS
from torch import Tensor

from clustercaps.functional import em_route, vb_route
from clustercaps.routing import Routed, moments, vote_chunks


@pytest.fixture(autouse=True, params=["auto", "chunked"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here with the compiled kernel, if it can be built, and without it."""
    monkeypatch.setenv("CLUSTERCAPS_BACKEND", request.param)


def plain_sum(weights: Tensor, votes: Tensor) -> Tensor:
    return (weights.unsqueeze(3) * votes).sum(1)


def plain_squares(weights: Tensor, votes: Tensor, mean: Tensor) -> Tensor:
    return (weights.unsqueeze(3) * (votes - mean.unsqueeze(1)).square()).sum(1)


def plain_distance(votes: Tensor, mean: Tensor, precision: Tensor) -> Tensor:
    return (precision.unsqueeze(1) * (votes - mean.unsqueeze(1)).square()).sum(3)


def joined_moments(weights: Tensor, votes: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    found = moments.VoteMoments(votes)
    mean, squares = found.mean_and_squares(weights, scale, offset)
    distance = found.distance(mean, squares)
    return torch.cat([mean, squares, distance.transpose(1, 2), found.sum(weights)], 2)


def plain_joined(weights: Tensor, votes: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    total = plain_sum(weights, votes)
    mean = scale * total + offset
    squares = plain_squares(weights, votes, mean)
    distance = plain_distance(votes, mean, squares)
    return torch.cat([mean, squares, distance.transpose(1, 2), total], 2)


def arguments(name: str, batch: int, positions: tuple[int, ...]) -> list[Tensor]:
    pair, parent = (batch, 4, 3, *positions), (batch, 3, 5, *positions)
    votes = (batch, 4, 3, 5, *positions)
    shapes = {
        "sum": (pair, votes),
        "squares": (pair, votes, parent),
        "distance": (votes, parent, parent),
        "all": (pair, votes, (batch, 3, 1, *positions), (3, 1, *positions)),
    }
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes[name]]


PAIRS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "sum": (moments.weighted_sum, plain_sum),
    "squares": (moments.weighted_squares, plain_squares),
    "distance": (moments.weighted_distance, plain_distance),
    "all": (joined_moments, plain_joined),
}


@pytest.mark.parametrize("positions", [(), (2, 3)])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients(
    name: str, batch: int, positions: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two images of these at a time, so that the last chunk of three is a smaller one.
    monkeypatch.setattr(
        vote_chunks, "CHUNK", 2 * 4 * 3 * 5 * 8 * len(torch.ones(positions).flatten())
    )
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
    torch.autograd.gradcheck(PAIRS[name][0], arguments(name, 1, (2,)))


@pytest.mark.parametrize("name", PAIRS)
def test_nothing_of_the_size_of_the_votes_is_kept(name: str) -> None:
    given = arguments(name, 3, (2, 3))
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        PAIRS[name][0](*given)
    own = {t.data_ptr() for t in given}
    size = max(t.numel() for t in given)
    assert all(t.data_ptr() in own or t.numel() < size / 2 for t in kept)


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


@pytest.mark.parametrize("inner_dims", [False, True])
def test_layout_of_the_votes_does_not_matter(inner_dims: bool) -> None:
    given = arguments("all", 2, (2, 3))
    votes = given[1].detach()
    turned = votes.transpose(2, 3).contiguous().transpose(2, 3) if inner_dims else votes
    rest = [given[0], turned.requires_grad_(), *given[2:]]
    for actual, expected in zip(
        torch.autograd.grad(joined_moments(*rest).square().sum(), rest),
        torch.autograd.grad(plain_joined(*given).square().sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected)


def test_each_backward_pass_adds_its_own_terms_only() -> None:
    given = arguments("all", 2, (2,))
    result = joined_moments(*given).square().sum()
    # The first pass ends before the gradient of the votes; the others compute it twice.
    torch.autograd.grad(result, given[0], retain_graph=True)
    first = torch.autograd.grad(result, given, retain_graph=True)
    second = torch.autograd.grad(result, given)
    right = torch.autograd.grad(plain_joined(*given).square().sum(), given)
    torch.testing.assert_close(first, right)
    torch.testing.assert_close(second, right)


def test_tiny_weights_count_in_gradients_only() -> None:
    weights = torch.tensor([[[1.0, 1e-15, 1e-25, 0.0]]], requires_grad=True)
    dropped = moments.drop_tiny(weights)
    assert dropped.tolist() == torch.tensor([[[1.0, 1e-15, 0.0, 0.0]]]).tolist()
    dropped.sum().backward()
    assert weights.grad is not None
    assert weights.grad.eq(1).all()


# Batch, children, parents, dimensions and positions.
SIZES = [(1, 1, 1, 1), (1, 1, 3, 4), (3, 5, 2, 7, 1, 3), (2, 27, 3, 16, 2, 2)]


@pytest.mark.parametrize("case", ["random", "equal", "zero"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("route", [em_route, vb_route])
def test_routings_equal_the_plain_formulas(
    route: Callable[..., Routed],
    size: tuple[int, ...],
    case: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = torch.Generator().manual_seed(0)
    batch, children, parents, _, *positions = size
    shapes = (size, (batch, children, *positions), (parents,), (parents,))
    given = [torch.rand(shape, generator=draw, dtype=torch.float64) for shape in shapes]
    if case != "random":
        given[0] = torch.full(size, float(case == "equal"), dtype=torch.float64)
    for each in given:
        each.requires_grad_()

    def run() -> list[Tensor]:
        routed = route(*given, lambdas=[0.5, 1.0, 2.0]) if route is em_route else route(*given)
        assert routed.activations is not None
        loss = routed.capsules.sin().sum() + routed.activations.square().sum()
        found = [routed.capsules, routed.activations, routed.coupling]
        return [*found, *torch.autograd.grad(loss + routed.coupling.square().sum(), given)]

    fast = run()
    monkeypatch.setattr(moments, "_plain", lambda: True)
    torch.testing.assert_close(fast, run(), rtol=1e-10, atol=1e-12)
