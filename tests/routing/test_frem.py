import pytest
import torch
from helpers.golden import ITERATIVE, assert_golden, fill

from clustercaps.functional import frem_route
from clustercaps.routing import create_routing
from clustercaps.testing import assert_routing_contract

VOTES = fill(1, 3, 2, 2)
ACTIVATIONS = torch.tensor([[0.9, 0.5, 0.7]], dtype=torch.float64)
GOLDEN = ITERATIVE["frem_reconstruction_T3_h2_4_a_.9_.5_.7"]


def draw() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 6, 3, 4, dtype=torch.float64), torch.rand(2, 6, dtype=torch.float64)


def test_golden_values() -> None:
    capsules, shares, coupling = frem_route(VOTES, ACTIVATIONS, bandwidth=2.0)
    assert_golden(capsules[0], GOLDEN["v"])
    assert_golden(shares[0], GOLDEN["pi"])
    assert_golden(coupling[0], GOLDEN["r"])
    with pytest.raises(AssertionError):
        assert_golden(frem_route(VOTES, bandwidth=2.0).capsules[0], GOLDEN["v"])


@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
def test_moving_all_votes_moves_the_capsules(kernel: str) -> None:
    votes, activations = draw()
    turn, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))
    shift = torch.randn(4, dtype=torch.float64)
    options = {"bandwidth": 3.0, "kernel": kernel}
    still = frem_route(votes, activations, **options)
    moved = frem_route(votes @ turn + shift, activations, **options)
    # The guard against children that all count nothing moves a hundred millionth of the shift.
    torch.testing.assert_close(moved.capsules, still.capsules @ turn + shift, rtol=0, atol=1e-6)
    torch.testing.assert_close(moved.coupling, still.coupling, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
def test_shares_sum_to_one(kernel: str) -> None:
    votes, activations = draw()
    for bandwidth in (0.1, 2.0, 50.0):
        routed = frem_route(votes, activations, bandwidth=bandwidth, kernel=kernel)
        for total in (routed.activations.sum(1), routed.coupling.sum(2)):
            torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-6)


def test_children_that_no_parent_is_near_to_are_split_evenly() -> None:
    coupling = frem_route(1e4 * torch.randn(2, 6, 3, 4)).coupling
    torch.testing.assert_close(coupling, torch.full_like(coupling, 1 / 3))


def test_the_m_step_never_lowers_the_objective() -> None:
    votes, activations = draw()
    width = 20.0

    def objective(coupling: torch.Tensor, capsules: torch.Tensor) -> torch.Tensor:
        near = 1 - (votes - capsules.unsqueeze(1)).square().sum(3) / width**2
        assert (near > 0).all()
        return (activations.unsqueeze(2) * coupling * near).sum((1, 2))

    for iterations in (2, 3, 4):
        before = frem_route(votes, activations, iterations=iterations - 1, bandwidth=width)
        after = frem_route(votes, activations, iterations=iterations, bandwidth=width)
        rise = objective(after.coupling, after.capsules) - objective(
            after.coupling, before.capsules
        )
        assert (rise >= -1e-12).all()


def test_children_without_activation_do_not_count() -> None:
    votes, activations = draw()
    activations[:, 2] = 0
    changed = votes.clone()
    changed[:, 2] += 5
    one, other = (frem_route(v, activations, bandwidth=3.0) for v in (votes, changed))
    torch.testing.assert_close(one.capsules, other.capsules)
    torch.testing.assert_close(one.activations, other.activations)


def test_one_parent_takes_the_mean() -> None:
    votes = torch.randn(2, 6, 1, 4, dtype=torch.float64)
    routed = frem_route(votes)
    torch.testing.assert_close(routed.capsules, votes.mean(1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
def test_gradcheck(kernel: str) -> None:
    votes = torch.randn(1, 3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    activations = (torch.rand(1, 3, 2, dtype=torch.float64) + 0.1).requires_grad_()
    width = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda v, a, h: frem_route(v, a, bandwidth=h, kernel=kernel)[:2],
        (votes, activations, width),
    )


def test_the_width_is_learned_or_left() -> None:
    learned = create_routing("frem", 6, 3, 4, bandwidth=3.0)
    fixed = create_routing("frem", 6, 3, 4, bandwidth=3.0, learn_bandwidth=False)
    votes = torch.randn(2, 6, 3, 4)
    torch.testing.assert_close(learned(votes), fixed(votes))
    learned(votes).capsules.square().sum().backward()
    assert learned.log_bandwidth.grad.abs() > 0
    assert not list(fixed.parameters())
    assert_routing_contract(lambda: create_routing("frem", 6, 3, 4, learn_bandwidth=False))
    assert_routing_contract(lambda: create_routing("frem", 6, 3, 4, kernel="gaussian"))


@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
def test_one_child_keeps_the_contract(kernel: str) -> None:
    assert_routing_contract(lambda: create_routing("frem", 1, 3, 4, kernel=kernel))
    assert_routing_contract(lambda: create_routing("frem", 1, 1, 4, kernel=kernel))


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="iterations must be an integer of at least 1, got 0"):
        create_routing("frem", 2, 2, 2, iterations=0)
    with pytest.raises(ValueError, match="unknown kernel 'gauss'; did you mean 'gaussian'"):
        create_routing("frem", 2, 2, 2, kernel="gauss")
    with pytest.raises(ValueError, match="bandwidth must be positive, got 0"):
        create_routing("frem", 2, 2, 2, bandwidth=0.0)
