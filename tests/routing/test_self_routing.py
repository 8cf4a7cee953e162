from functools import partial

import pytest
import torch
from helpers.golden import ATTENTION, assert_golden, fill

from clustercaps.functional import self_route
from clustercaps.routing import create_routing

GOLDEN = ATTENTION["self_routing"]
POSES = fill(1, 2, 3, step=0.8, start=0.4)
ACTIVATIONS = torch.tensor([[0.3, 0.9]], dtype=torch.float64)
VOTES = torch.einsum("ijdc,bic->bijd", fill(2, 2, 2, 3, step=0.5, start=0.1), POSES)
WEIGHT = fill(2, 2, 3, step=0.6, start=0.2)
BIAS = fill(2, 2, step=0.7, start=0.3)


def test_golden_values() -> None:
    capsules, activations, coupling = self_route(VOTES, ACTIVATIONS, POSES, WEIGHT, BIAS)
    assert_golden(coupling[0], GOLDEN["c"])
    assert_golden(activations[0], GOLDEN["a_out"])
    assert_golden(capsules[0], GOLDEN["pose_out"])


def random_input(*positions: int) -> tuple[torch.Tensor, ...]:
    shapes = [(2, 5, 3, 4, *positions), (2, 5, *positions), (2, 5, 6, *positions), (5, 3, 6)]
    votes, logits, poses, weight = (torch.randn(s, dtype=torch.float64) for s in shapes)
    return votes, logits.sigmoid(), poses, weight, torch.randn(5, 3, dtype=torch.float64)


def test_activations_are_shares_of_one() -> None:
    activations = partial(self_route, eps=0.0)(*random_input(2, 3)).activations
    torch.testing.assert_close(activations.sum(1), torch.ones(2, 2, 3, dtype=torch.float64))


def test_votes_do_not_decide() -> None:
    votes, *rest = random_input()
    one, other = self_route(votes, *rest), self_route(votes.flip(1), *rest)
    torch.testing.assert_close(other.coupling, one.coupling)
    torch.testing.assert_close(other.activations, one.activations)


def test_absent_children_are_ignored() -> None:
    votes, activations, *rest = random_input()
    activations[:, 1] = 0
    before = self_route(votes, activations, *rest)
    votes[:, 1] += 100
    after = self_route(votes, activations, *rest)
    torch.testing.assert_close(after.capsules, before.capsules)
    # Capsules are means of votes: equal activations of any size give the same.
    whole, half = (self_route(votes, a * torch.ones_like(activations), *rest) for a in (1.0, 0.5))
    torch.testing.assert_close(half.capsules, whole.capsules, rtol=1e-4, atol=1e-4)


def test_a_fresh_module_shares_equally() -> None:
    votes, activations, poses, _, _ = random_input()
    routed = create_routing("self_routing", 5, 3, 4, in_dim=6).double()(votes, activations, poses)
    torch.testing.assert_close(routed.coupling, torch.full_like(routed.coupling, 1 / 3))


def test_gradcheck() -> None:
    inputs = [x[:1].requires_grad_() if i < 3 else x.requires_grad_() for i, x in
              enumerate(random_input(2))]  # fmt: skip
    assert torch.autograd.gradcheck(lambda *x: self_route(*x)[:2], inputs)


def test_poses_of_another_size_are_named() -> None:
    routing = create_routing("self_routing", 5, 3, 4, in_dim=6)
    with pytest.raises(ValueError, match=r"expects poses of dimension 6.*in_dim=2"):
        routing(torch.ones(1, 5, 3, 4), torch.ones(1, 5), torch.ones(1, 5, 2))
    with pytest.raises(ValueError, match="needs the poses of the children"):
        routing(torch.ones(1, 5, 3, 4))
