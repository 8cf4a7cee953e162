import pytest
import torch
from helpers.golden import ITERATIVE, assert_golden, fill

from clustercaps.functional import dynamic_route, squash, squash_unsquared
from clustercaps.routing import create_routing

VOTES = fill(1, 3, 2, 2)


@pytest.mark.parametrize(
    ("case", "votes", "options"),
    [
        ("dynamic_T1", VOTES, {"iterations": 1}),
        ("dynamic_T2", VOTES, {"iterations": 2}),
        ("dynamic_T3", VOTES, {"iterations": 3}),
        ("dynamic_leaky_T3", VOTES, {"leaky": True}),
        ("dynamic_2uhat_T3", 2 * VOTES, {}),
        ("dynamic_bias0.1_T3", VOTES, {"bias": torch.full((2, 2), 0.1, dtype=torch.float64)}),
    ],
)
def test_golden_values(case: str, votes: torch.Tensor, options: dict[str, object]) -> None:
    capsules, lengths, coupling = dynamic_route(votes, **options)
    assert_golden(capsules[0], ITERATIVE[case]["v"])
    assert_golden(coupling[0], ITERATIVE[case]["c"])
    torch.testing.assert_close(lengths, capsules.norm(dim=2), rtol=1e-4, atol=1e-5)


def test_softmax_over_children_is_not_what_we_do() -> None:
    wrong = ITERATIVE["dynamic_WRONG_softmax_over_inputs_T3"]
    with pytest.raises(AssertionError):
        assert_golden(dynamic_route(VOTES).capsules[0], wrong["v"])
    # The golden values of the wrong axis are what that axis gives: the test above can fail.
    logits = torch.zeros(1, 3, 2, dtype=torch.float64)
    for _ in range(3):
        coupling = logits.softmax(1)
        capsules = squash(torch.einsum("bij,bijd->bjd", coupling, VOTES))
        logits = logits + torch.einsum("bijd,bjd->bij", VOTES, capsules)
    assert_golden(capsules[0], wrong["v"])


def test_squash_by_hand() -> None:
    assert_golden(squash(torch.tensor([3.0, 4.0])), [0.576923, 0.769231])
    assert_golden(squash_unsquared(torch.tensor([3.0, 4.0])), [0.5, 0.666667])


def test_turning_all_votes_turns_the_capsules() -> None:
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    turn, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))
    straight, turned = dynamic_route(votes), dynamic_route(votes @ turn)
    torch.testing.assert_close(turned.capsules, straight.capsules @ turn)
    torch.testing.assert_close(turned.coupling, straight.coupling)


def test_lengths_stay_below_one_and_leaky_children_may_leave() -> None:
    votes = 10 * torch.randn(2, 6, 3, 4, dtype=torch.float64)
    assert (dynamic_route(votes).capsules.norm(dim=2) < 1).all()
    leaky = dynamic_route(votes / 10, leaky=True).coupling.sum(2)
    assert (leaky < 1).all()


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_one_parent_takes_all(iterations: int) -> None:
    votes = torch.randn(2, 6, 1, 4, dtype=torch.float64)
    capsules = dynamic_route(votes, iterations=iterations).capsules
    torch.testing.assert_close(capsules, squash(votes.sum(1)))


def test_detached_iterations_change_only_the_gradient() -> None:
    votes = torch.randn(1, 6, 3, 4, dtype=torch.float64, requires_grad=True)
    whole, last = (dynamic_route(votes, detach_inner=d).capsules for d in (False, True))
    torch.testing.assert_close(whole, last)
    weights = torch.randn_like(whole)
    gradients = [torch.autograd.grad((v * weights).sum(), votes)[0] for v in (whole, last)]
    assert not torch.allclose(*gradients)


def test_gradcheck() -> None:
    votes = torch.randn(1, 3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: dynamic_route(v, leaky=True)[:2], votes)


def test_iterations_must_be_positive() -> None:
    with pytest.raises(ValueError, match="iterations must be an integer of at least 1, got 0"):
        create_routing("dynamic", 2, 2, 2, iterations=0)
