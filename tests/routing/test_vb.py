import pytest
import torch
from helpers.golden import ITERATIVE, assert_golden, fill

from clustercaps.functional import vb_route
from clustercaps.routing import create_routing

VOTES = fill(1, 4, 2, 4)
LOGITS = torch.tensor([[0.9, 0.5, 0.7, 0.2]]).double().logit()
ZEROS = torch.zeros(2).double()


def draw(parents: int = 3) -> list[torch.Tensor]:
    shapes = [(2, 6, parents, 4), (2, 6), (parents,), (parents,)]
    return [torch.randn(shape).double() for shape in shapes]


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_golden_values(iterations: int) -> None:
    golden = ITERATIVE[f"vb_T{iterations}"]
    means, logits, coupling = vb_route(VOTES, LOGITS, ZEROS, ZEROS, iterations=iterations)
    assert_golden(means[0], golden["m"])
    assert_golden(logits[0], golden["a_logit_preBN"])
    assert_golden(coupling[0], golden["R"])


def test_betas_shift_the_logits() -> None:
    plain = vb_route(VOTES, LOGITS, ZEROS, ZEROS)
    beta_u, beta_a = torch.tensor([0.5, 1.0]).double(), torch.tensor([2.0, -1.0]).double()
    shifted = vb_route(VOTES, LOGITS, beta_u, beta_a)
    torch.testing.assert_close(shifted.activations, plain.activations + beta_a - beta_u)


def test_normalising_r_again_would_cancel_the_activations() -> None:
    # R sums to 1 over the parents, so that R a / sum(R a) is R: as if all children were there.
    everyone = vb_route(VOTES, torch.full_like(LOGITS, 40.0), ZEROS, ZEROS)
    with pytest.raises(AssertionError):
        assert_golden(everyone.capsules[0], ITERATIVE["vb_T3"]["m"])


def test_a_child_that_is_off_has_no_influence() -> None:
    votes, logits, *betas = draw()
    more = torch.cat([votes, 9 * votes[:, :1]], 1)
    off = torch.cat([logits, torch.full_like(logits[:, :1], -torch.inf)], 1)
    torch.testing.assert_close(vb_route(more, off, *betas)[:2], vb_route(votes, logits, *betas)[:2])


def test_many_votes_outweigh_the_prior() -> None:
    votes, logits, *betas = draw()
    shares = logits.sigmoid() / logits.sigmoid().sum(1, keepdim=True)
    center = torch.einsum("bi,bijd->bjd", shares, votes)
    # The same children, each 1, 100 and 10,000 times.
    distances = [
        (
            vb_route(votes, logits, *betas, iterations=1, kappa=1 / times, alpha=1 / times).capsules
            - center
        ).norm()
        for times in (1, 100, 10000)
    ]
    assert distances[0] > 30 * distances[1] > 900 * distances[2]
    # The prior holds the means back, so that a shift of the votes is not a shift of the means.
    moved = vb_route(votes + 1, logits, *betas).capsules
    assert not torch.allclose(moved, vb_route(votes, logits, *betas).capsules + 1, atol=1e-2)


def test_one_parent_takes_all() -> None:
    assert (vb_route(*draw(parents=1)).coupling == 1).all()


def test_no_children_leave_the_prior() -> None:
    votes, logits, *betas = draw()
    means, activations, _ = vb_route(votes, torch.full_like(logits, -torch.inf), *betas)
    assert (means == 0).all()
    assert activations.isfinite().all()


def test_module_equals_function() -> None:
    votes, logits, *_ = draw()
    routing = create_routing("vb", 6, 3, 4).double()
    zeros = torch.zeros(3).double()
    torch.testing.assert_close(routing(votes, logits), vb_route(votes, logits, zeros, zeros))


def test_gradcheck() -> None:
    votes, logits, beta_u, beta_a = draw()
    inputs = [votes[:1, :3, :2, :2], logits[:1, :3], beta_u[:2], beta_a[:2]]
    inputs = [each.clone().requires_grad_() for each in inputs]
    assert torch.autograd.gradcheck(lambda *each: vb_route(*each)[:2], inputs)


def test_bad_priors_are_refused() -> None:
    with pytest.raises(ValueError, match="nu must be greater than dim - 1 = 3"):
        create_routing("vb", 2, 2, 4, nu=3.0)
    with pytest.raises(ValueError, match="kappa must be positive"):
        create_routing("vb", 2, 2, 4, kappa=0.0)
    with pytest.raises(ValueError, match="iterations must be an integer of at least 1"):
        create_routing("vb", 2, 2, 4, iterations=0)
