from functools import partial

import pytest
import torch
from helpers.golden import ITERATIVE, assert_golden, fill

from clustercaps.functional import dynamic_route, max_min_route, squash
from clustercaps.routing import create_routing
from clustercaps.routing.max_min import max_min
from clustercaps.testing import assert_routing_contract

VOTES = fill(1, 3, 3, 2)


@pytest.mark.parametrize("axis", ["parents", "children"])
def test_golden_values(axis: str) -> None:
    capsules, lengths, coupling = max_min_route(VOTES, axis=axis)
    golden = ITERATIVE[f"maxmin_T3_over_{axis}"]
    assert_golden(capsules[0], golden["v"])
    assert_golden(coupling[0], golden["c"])
    torch.testing.assert_close(lengths, capsules.norm(dim=2), rtol=1e-4, atol=1e-3)


def test_softmax_does_not_give_the_golden_values() -> None:
    with pytest.raises(AssertionError):
        assert_golden(dynamic_route(VOTES).capsules[0], ITERATIVE["maxmin_T3_over_parents"]["v"])


@pytest.mark.parametrize(("axis", "dim"), [("parents", 2), ("children", 1)])
def test_couplings_reach_both_bounds(axis: str, dim: int) -> None:
    votes = torch.randn(2, 6, 4, 3, 2, dtype=torch.float64)
    first = max_min_route(votes, iterations=1, axis=axis).coupling
    torch.testing.assert_close(first, torch.ones_like(first))
    later = max_min_route(votes, axis=axis).coupling
    torch.testing.assert_close(later.amax(dim), torch.ones_like(later.amax(dim)))
    torch.testing.assert_close(later.amin(dim), torch.zeros_like(later.amin(dim)))
    between = max_min_route(votes, axis=axis, lower=0.2, upper=0.7).coupling
    assert between.min() == pytest.approx(0.2)
    assert between.max() == pytest.approx(0.7)


def test_couplings_do_not_depend_on_scale_and_shift_of_the_logits() -> None:
    logits = torch.randn(2, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(max_min(3.7 * logits - 2, 2), max_min(logits, 2))


def test_ties_count_as_at_the_start() -> None:
    torch.testing.assert_close(max_min(torch.zeros(1, 2, 3), 2), torch.ones(1, 2, 3))
    third = torch.tensor([[[1 / 3, 1 / 3 + 1e-8, 1 / 3]]])
    torch.testing.assert_close(max_min(third, 2), torch.ones(1, 1, 3))


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_one_parent_takes_all(iterations: int) -> None:
    votes = torch.randn(2, 6, 1, 4, dtype=torch.float64)
    capsules = max_min_route(votes, iterations=iterations).capsules
    torch.testing.assert_close(capsules, squash(votes.sum(1)))


def test_two_parents_are_chosen_hard() -> None:
    coupling = max_min_route(torch.randn(2, 6, 2, 4, dtype=torch.float64)).coupling
    assert set(coupling.flatten().tolist()) == {0.0, 1.0}


def test_turning_all_votes_turns_the_capsules() -> None:
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    turn, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))
    straight, turned = max_min_route(votes), max_min_route(votes @ turn)
    torch.testing.assert_close(turned.capsules, straight.capsules @ turn)
    torch.testing.assert_close(turned.coupling, straight.coupling)


@pytest.mark.parametrize("axis", ["parents", "children"])
def test_both_axes_keep_the_contract(axis: str) -> None:
    for children, parents in ((6, 3), (1, 3), (1, 1)):
        assert_routing_contract(partial(create_routing, "max_min", children, parents, 4, axis=axis))


@pytest.mark.parametrize("axis", ["parents", "children"])
def test_gradcheck(axis: str) -> None:
    votes = torch.randn(1, 3, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: max_min_route(v, axis=axis)[:2], votes)


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="iterations must be an integer of at least 1, got 0"):
        create_routing("max_min", 2, 2, 2, iterations=0)
    with pytest.raises(ValueError, match="unknown axis 'parent'; did you mean 'parents'"):
        create_routing("max_min", 2, 2, 2, axis="parent")
    with pytest.raises(ValueError, match="need 0 <= lower < upper"):
        create_routing("max_min", 2, 2, 2, lower=1.0)
