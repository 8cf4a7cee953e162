import pytest
import torch
from helpers.golden import ATTENTION, assert_golden, fill

from clustercaps.functional import self_attention_route, squash_exponential

GOLDEN = ATTENTION["efficient_caps"]
CHILDREN = squash_exponential(fill(3, 2, step=0.9, start=0.3))
VOTES = torch.einsum("ia,kiad->ikd", CHILDREN, fill(2, 3, 2, 2, step=0.41, start=0.15))[None]
BIAS = 0.1 * fill(2, 3, step=1.3, start=0.2).T


def test_golden_values() -> None:
    capsules, lengths, coupling = self_attention_route(VOTES, BIAS)
    assert_golden(coupling[0].T - BIAS.T, GOLDEN["coupling"])
    assert_golden(capsules[0], GOLDEN["v"])
    assert_golden(lengths[0], GOLDEN["length"])
    total = torch.einsum("bij,bijd->bjd", coupling, VOTES)
    assert_golden(total[0], GOLDEN["s"])


def test_squash_by_hand() -> None:
    squashed = squash_exponential(torch.tensor([3.0, 4.0], dtype=torch.float64))
    assert_golden(squashed, GOLDEN["squash_3_4"])
    # 1 - exp(-5)
    assert squashed.norm().item() == pytest.approx(0.993262, abs=1e-6)
    # Slope 1 at the origin.
    tiny = torch.full((2,), 1e-6, requires_grad=True)
    squash_exponential(tiny).sum().backward()
    torch.testing.assert_close(tiny.grad, torch.ones(2), rtol=0, atol=1e-3)


def test_sum_inside_equals_all_pairs_of_votes() -> None:
    votes = torch.randn(2, 6, 3, 4, 2, 2, dtype=torch.float64)
    pairs = torch.einsum("bijdhw,bkjdhw->bikjhw", votes, votes)
    coupling = (pairs.sum(2) / 2).softmax(2)
    torch.testing.assert_close(self_attention_route(votes).coupling, coupling)


def test_bias_comes_after_the_softmax() -> None:
    plain, shifted = (self_attention_route(VOTES, b).coupling for b in (None, BIAS))
    torch.testing.assert_close(plain.sum(2), torch.ones_like(plain[:, :, 0]))
    torch.testing.assert_close(shifted, plain + BIAS)
    assert not torch.allclose(shifted.sum(2), torch.ones_like(plain[:, :, 0]), atol=1e-3)


def test_softmax_over_children_is_not_what_we_do() -> None:
    logits = torch.tensor(GOLDEN["logits"], dtype=torch.float64)
    with pytest.raises(AssertionError):
        assert_golden(logits.softmax(1), GOLDEN["coupling"])
    assert_golden(logits.softmax(0), GOLDEN["coupling"])


def test_order_of_children_with_their_biases_changes_nothing() -> None:
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    bias = torch.randn(6, 3, dtype=torch.float64)
    straight = self_attention_route(votes, bias)
    turned = self_attention_route(votes.flip(1), bias.flip(0))
    torch.testing.assert_close(turned.capsules, straight.capsules)
    assert (straight.capsules.norm(dim=2) < 1).all()


def test_gradcheck() -> None:
    votes = torch.randn(1, 3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, b: self_attention_route(v, b)[:2], (votes, bias))
