import pytest
import torch
from helpers.golden import ITERATIVE, assert_golden, fill

from clustercaps.functional import dynamic_route, frms_route, squash_half
from clustercaps.routing import create_routing
from clustercaps.routing.frms import squared_distances, squashed_distances
from clustercaps.testing import assert_routing_contract

VOTES = fill(1, 3, 2, 2)
GOLDEN = ITERATIVE["frms_coauthor_T3"]


def test_golden_values() -> None:
    capsules, lengths, coupling = frms_route(VOTES)
    assert_golden(capsules[0], GOLDEN["v"])
    assert_golden(coupling[0], GOLDEN["c"])
    torch.testing.assert_close(lengths, capsules.norm(dim=2), rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError):
        assert_golden(dynamic_route(VOTES).capsules[0], GOLDEN["v"])


def test_squash_by_hand() -> None:
    # Length 5 becomes 25 / 25.5.
    assert_golden(squash_half(torch.tensor([3.0, 4.0])), [0.588235, 0.784314])


def test_the_weighted_form_by_hand() -> None:
    """Two iterations, one number in a vote, two children and two parents."""
    votes = torch.tensor([[[[0.0], [2.0]], [[1.0], [0.0]]]], dtype=torch.float64)
    activations = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    capsules, lengths, coupling = frms_route(votes, activations, iterations=2, mode="weighted")
    # First means: (0 + 3) / 4 and (2 + 0) / 4. Distances: 0.75, 1.5 / 0.25, 0.5.
    logits = torch.tensor([[1 - 0.5625, 1 - 2.25], [1 - 0.0625, 1 - 0.25]], dtype=torch.float64)
    torch.testing.assert_close(coupling[0], logits.softmax(1))
    weights = logits.softmax(1) * activations[0, :, None]
    expected = (weights * votes[0, :, :, 0]).sum(0) / weights.sum(0)
    torch.testing.assert_close(capsules[0, :, 0], expected)
    assert lengths is None


def test_distances_without_a_copy_are_those_with_one() -> None:
    votes = 3 * torch.randn(2, 6, 3, 4, 2, dtype=torch.float64)
    capsules = squash_half(torch.randn(2, 3, 4, 2, dtype=torch.float64), dim=2)
    plain = squared_distances(squash_half(votes, dim=3), capsules)
    torch.testing.assert_close(squashed_distances(votes, capsules), plain)


@pytest.mark.parametrize("mode", ["coauthor", "weighted"])
def test_turning_all_votes_turns_the_capsules(mode: str) -> None:
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    turn, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))
    straight, turned = frms_route(votes, mode=mode), frms_route(votes @ turn, mode=mode)
    torch.testing.assert_close(turned.capsules, straight.capsules @ turn)
    torch.testing.assert_close(turned.coupling, straight.coupling)


@pytest.mark.parametrize("mode", ["coauthor", "weighted"])
def test_children_without_activation_do_not_count(mode: str) -> None:
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    activations = torch.rand(2, 6, dtype=torch.float64)
    activations[:, 2] = 0
    changed = votes.clone()
    changed[:, 2] += 5
    one, other = (frms_route(v, activations, mode=mode).capsules for v in (votes, changed))
    torch.testing.assert_close(one, other)
    # All as active as each other is the form without activations.
    even = frms_route(votes, torch.full((2, 6), 0.3, dtype=torch.float64), mode=mode)
    torch.testing.assert_close(
        even.capsules, frms_route(votes, mode=mode).capsules, atol=1e-6, rtol=0
    )


def test_one_parent_takes_the_mean() -> None:
    votes = torch.randn(2, 6, 1, 4, dtype=torch.float64)
    torch.testing.assert_close(
        frms_route(votes).capsules, squash_half(votes.mean(1)), atol=1e-6, rtol=0
    )
    assert (frms_route(100 * votes).capsules.norm(dim=2) < 1).all()


def test_the_weighted_form_keeps_the_contract() -> None:
    assert_routing_contract(lambda: create_routing("frms", 6, 3, 4, mode="weighted"))


@pytest.mark.parametrize("mode", ["coauthor", "weighted"])
def test_one_child_keeps_the_contract(mode: str) -> None:
    assert_routing_contract(lambda: create_routing("frms", 1, 3, 4, mode=mode))
    assert_routing_contract(lambda: create_routing("frms", 1, 1, 4, mode=mode))


@pytest.mark.parametrize("mode", ["coauthor", "weighted"])
def test_gradcheck(mode: str) -> None:
    votes = torch.randn(1, 3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    activations = torch.rand(1, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda v, a: frms_route(v, a, mode=mode).capsules, (votes, activations)
    )


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="iterations must be an integer of at least 1, got 0"):
        create_routing("frms", 2, 2, 2, iterations=0)
    with pytest.raises(ValueError, match="unknown mode 'weight'; did you mean 'weighted'"):
        create_routing("frms", 2, 2, 2, mode="weight")
