import pytest
import torch
from helpers.golden import ATTENTION, assert_golden, fill

from clustercaps.functional import attention_route, capsule_activation
from clustercaps.layers.activation import CapsuleActivation
from clustercaps.routing import create_routing
from clustercaps.routing.squash import length

GOLDEN = ATTENTION["ar_caps"]
# Golden votes have the axes (D, I); ours are [B, I, J, D].
VOTES = fill(3, 2, step=0.8, start=0.1).T[None, :, None]
WEIGHT = fill(1, 3, 2, 2, step=0.45, start=0.3)


def test_golden_values() -> None:
    capsules, activations, coupling = attention_route(VOTES, WEIGHT)
    assert activations is None
    assert_golden(coupling[0, :, 0], GOLDEN["alpha"])
    assert_golden(coupling[0, :, 0].log().diff(), torch.tensor(GOLDEN["logits"]).diff().tolist())
    assert_golden(capsules[0, 0], GOLDEN["s"])
    # The golden matrix has rows for what goes in.
    matrix = fill(3, 3, step=0.33, start=0.7).T[None]
    out = capsule_activation(capsules, matrix, fill(1, 3, step=1.1, start=0.2))
    assert_golden(out[0, 0], GOLDEN["out"])
    assert_golden(length(out)[0, 0] / 3**0.5, GOLDEN["length"])


def test_axes_of_the_scores_matter() -> None:
    wrong = attention_route(VOTES, WEIGHT.transpose(2, 3)).coupling
    with pytest.raises(AssertionError):
        assert_golden(wrong[0, :, 0], GOLDEN["alpha"])


def test_one_child_is_the_capsule() -> None:
    votes = torch.randn(2, 1, 3, 4, 5, dtype=torch.float64)
    weight = torch.randn(3, 4, 1, 1, dtype=torch.float64)
    torch.testing.assert_close(attention_route(votes, weight).capsules, votes[:, 0])


def test_parents_do_not_compete() -> None:
    routing = create_routing("attention", 6, 3, 4).double()
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    coupling = routing(votes).coupling
    torch.testing.assert_close(coupling.sum(1), torch.ones_like(coupling[:, 0]))
    changed = votes.clone()
    changed[:, :, 0] += 1
    torch.testing.assert_close(routing(changed).capsules[:, 1:], routing(votes).capsules[:, 1:])


def test_capsule_activation_by_hand() -> None:
    capsules = torch.randn(2, 3, 4, 5)
    shift = torch.randn(3, 4)
    silent = capsule_activation(capsules, torch.zeros(3, 4, 4), shift)
    torch.testing.assert_close(silent, shift.tanh()[None, :, :, None].expand_as(silent))
    residual = torch.randn_like(capsules)
    added = capsule_activation(capsules, torch.eye(4).repeat(3, 1, 1), shift, residual)
    torch.testing.assert_close(added, (capsules + residual + shift[None, :, :, None]).tanh())


def test_scores_of_classes_stay_below_one() -> None:
    out = CapsuleActivation(3, 4)(2 * torch.randn(2, 3, 4))
    assert (length(out) / 2 < 1).all()


def test_gradcheck() -> None:
    votes = torch.randn(1, 3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, w: attention_route(v, w).capsules, (votes, weight))
    capsules, matrix, shift = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in ((2, 3, 2, 2), (3, 2, 2), (3, 2))
    )
    assert torch.autograd.gradcheck(capsule_activation, (capsules, matrix, shift))


@pytest.mark.parametrize("positions", [(), (1,), (2, 3)])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_products_against_the_equations(batch: int, positions: tuple[int, ...]) -> None:
    votes = torch.randn(batch, 4, 3, 5, *positions, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 5, 4, 4, dtype=torch.float64, requires_grad=True)
    coupling = torch.einsum("bmjd...,jdmn->bnj...", votes, weight).softmax(1)
    capsules = (coupling.unsqueeze(3) * votes).sum(1)
    routed = attention_route(votes, weight)
    torch.testing.assert_close(routed.coupling, coupling)
    torch.testing.assert_close(routed.capsules, capsules)
    pull = torch.randn_like(capsules)
    grads = torch.autograd.grad(routed.capsules, (votes, weight), pull)
    torch.testing.assert_close(grads, torch.autograd.grad(capsules, (votes, weight), pull))
