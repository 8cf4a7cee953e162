import pytest
import torch
from helpers.golden import ATTENTION, assert_golden, fill

from clustercaps.functional import heinsen_route
from clustercaps.routing import create_routing

GOLDEN = ATTENTION["heinsen2019"]
POSES = fill(3, 1, 2, step=0.8, start=0.3)
VOTES = (
    torch.einsum("ijdh,icd->ijch", fill(3, 2, 2, 2, step=0.5, start=0.2), POSES)
    + 0.1 * fill(3, 2, 1, 2, step=0.7, start=0.1)
).flatten(2)[None]
SCORES = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64)
USE = 0.5 * fill(3, 2, step=0.9, start=0.4)
IGNORE = 0.5 * fill(3, 2, step=1.1, start=0.6)


def random_input(*positions: int) -> tuple[torch.Tensor, ...]:
    shapes = [(2, 5, 3, 4, *positions), (2, 5, *positions), (5, 3), (5, 3)]
    return tuple(torch.randn(s, dtype=torch.float64) for s in shapes)


def test_golden_values() -> None:
    capsules, scores, coupling = heinsen_route(VOTES, SCORES, USE, IGNORE)
    assert_golden(coupling[0], GOLDEN["R"])
    assert_golden(scores[0], GOLDEN["a_out"])
    assert_golden(capsules[0].unsqueeze(1), GOLDEN["mu"])
    variance = 1e-5 + torch.einsum(
        "bij,bijd->bjd",
        (used := SCORES.sigmoid()[..., None] * coupling) / (used.sum(1, keepdim=True) + 1e-5),
        (VOTES - capsules[:, None]).square(),
    )
    assert_golden(variance[0].unsqueeze(1), GOLDEN["sig2"])


def test_activations_are_logits() -> None:
    wrong = heinsen_route(VOTES, SCORES.sigmoid(), USE, IGNORE)
    with pytest.raises(AssertionError):
        assert_golden(wrong.activations[0], GOLDEN["a_out"])


def test_one_iteration_shares_equally() -> None:
    votes, scores, use, ignore = random_input()
    routed = heinsen_route(votes, scores, use, ignore, iterations=1)
    torch.testing.assert_close(routed.coupling, torch.full_like(routed.coupling, 1 / 3))
    there = scores.sigmoid()
    # What a parent does not use of a child, two thirds, it ignores.
    expected = (there / 3) @ use - (there * 2 / 3) @ ignore
    torch.testing.assert_close(routed.activations, expected)


def test_one_parent_uses_all() -> None:
    votes, scores, use, ignore = random_input(2)
    routed = heinsen_route(votes[:, :, :1], scores, use[:, :1], ignore[:, :1])
    torch.testing.assert_close(routed.coupling, torch.ones_like(routed.coupling))


def test_absent_children_are_ignored() -> None:
    votes, scores, use, ignore = random_input()
    scores[:, 1] = -200
    before = heinsen_route(votes, scores, use, ignore)
    votes[:, 1] += 100
    after = heinsen_route(votes, scores, use, ignore)
    torch.testing.assert_close(after.capsules, before.capsules)
    torch.testing.assert_close(after.activations, before.activations)


def test_shared_gains_equal_repeated_ones() -> None:
    votes, scores, use, ignore = random_input()
    repeated = heinsen_route(votes, scores, use[:1].repeat(5, 1), ignore[:1].repeat(5, 1))
    shared = heinsen_route(votes, scores, use[:1], ignore[:1])
    torch.testing.assert_close(shared, repeated)
    module = create_routing("heinsen", 5, 3, 4, shared=True)
    assert [tuple(p.shape) for p in module.parameters()] == [(1, 3), (1, 3)]


def test_gradcheck() -> None:
    inputs = [x[:1].requires_grad_() if i < 2 else x.requires_grad_() for i, x in
              enumerate(random_input(2))]  # fmt: skip
    assert torch.autograd.gradcheck(lambda *x: heinsen_route(*x)[:2], inputs)


def test_iterations_must_be_positive() -> None:
    with pytest.raises(ValueError, match="iterations must be an integer of at least 1, got 0"):
        create_routing("heinsen", 2, 2, 2, iterations=0)
