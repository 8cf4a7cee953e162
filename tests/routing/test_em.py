import pytest
import torch
from helpers.golden import ITERATIVE, assert_golden, fill

from clustercaps.functional import em_route
from clustercaps.routing import create_routing
from clustercaps.routing.em import lambda_schedule

VOTES = fill(1, 4, 2, 4)
ACTIVATIONS = torch.tensor([[0.9, 0.5, 0.7, 0.2]]).double()
BETA_U, BETA_A = torch.tensor([0.1, 0.2]).double(), torch.tensor([0.3, -0.1]).double()


def draw(parents: int = 3) -> list[torch.Tensor]:
    shapes = [(2, 6, parents, 4), (2, 6), (parents,), (parents,)]
    votes, activations, beta_u, beta_a = (torch.randn(shape).double() for shape in shapes)
    return [votes, activations.sigmoid(), beta_u, beta_a]


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("em_T1", {"iterations": 1}),
        ("em_T2", {"iterations": 2}),
        ("em_T3", {"iterations": 3}),
        ("em_T3_lambda_1_2_3", {"lambdas": [1.0, 2.0, 3.0]}),
    ],
)
@pytest.mark.parametrize("eps", [0.0, 1e-9])
def test_golden_values(case: str, options: dict[str, object], eps: float) -> None:
    mean, activations, coupling = em_route(VOTES, ACTIVATIONS, BETA_U, BETA_A, eps=eps, **options)
    assert_golden(mean[0], ITERATIVE[case]["mu"])
    assert_golden(activations[0], ITERATIVE[case]["a"])
    assert_golden(coupling[0], ITERATIVE[case]["R"])


def test_golden_values_of_the_authors_code() -> None:
    golden = ITERATIVE["em_authors_code_fc"]
    # Their two biases in the paper's terms.
    log_2_pi = 1.8378770664093453
    beta_u = torch.tensor(golden["sig_bias"]).double() * (log_2_pi + 1) / 2
    beta_a = -2500 * torch.tensor(golden["act_bias"]).double()
    mean, activations, coupling = em_route(
        VOTES, ACTIVATIONS, beta_u, beta_a, final_lambda=2.0, smoothing=0.1, eps=5e-4
    )
    # They add 1e-5 to the mass of a parent.
    assert_golden(mean[0], golden["center"], 3e-5)
    assert_golden(activations[0], golden["a"], 3e-5)
    assert_golden(coupling[0], golden["R"], 3e-5)


def test_normalising_r_again_would_cancel_the_activations() -> None:
    def ported(activations: torch.Tensor) -> torch.Tensor:
        coupling = torch.full((4, 2), 0.5).double()
        for step in range(3):
            r = coupling * activations.unsqueeze(1)
            r = r / r.sum(1, keepdim=True)
            mass = r.sum(0)
            mean = torch.einsum("ij,ijd->jd", r, VOTES[0]) / mass.unsqueeze(1)
            squares = (VOTES[0] - mean).square()
            variance = torch.einsum("ij,ijd->jd", r, squares) / mass.unsqueeze(1)
            spread = variance.log().sum(1) / 2
            odds = lambda_schedule(0.01, 3)[step] * (BETA_A - (4 * BETA_U + spread) * mass)
            logits = odds.sigmoid().log() - spread - (squares / variance).sum(2) / 2
            coupling = logits.softmax(1)
        return mean

    wrong = ported(ACTIVATIONS[0])
    torch.testing.assert_close(wrong, ported(torch.tensor([0.1, 0.9, 0.3, 0.6]).double()))
    with pytest.raises(AssertionError):
        assert_golden(wrong, ITERATIVE["em_T3"]["mu"])
    # Without the second normalisation, the same steps are right: the test above can fail.
    others = em_route(VOTES, ACTIVATIONS.flip(1), BETA_U, BETA_A, eps=0.0)
    with pytest.raises(AssertionError):
        assert_golden(others.capsules[0], ITERATIVE["em_T3"]["mu"])


def test_by_hand() -> None:
    votes = torch.tensor([0.0, 2.0]).double().view(1, 2, 1, 1)
    one = torch.ones(1).double()
    mean, activations, coupling = em_route(
        votes, torch.ones(1, 2).double(), 0.5 * one, 2 * one, iterations=1, lambdas=[1.0], eps=0.0
    )
    assert mean.item() == pytest.approx(1)
    assert activations.item() == pytest.approx(0.731059, abs=1e-6)
    assert (coupling == 1).all()


def test_shifting_all_votes_shifts_the_means() -> None:
    votes, *others = draw()
    shift = torch.randn(4).double()
    straight, shifted = em_route(votes, *others), em_route(votes + shift, *others)
    torch.testing.assert_close(shifted.capsules, straight.capsules + shift)
    torch.testing.assert_close(shifted.activations, straight.activations)
    torch.testing.assert_close(shifted.coupling, straight.coupling)


def test_stretching_one_number_and_shrinking_another_changes_no_activation() -> None:
    votes, *others = draw()
    stretch = torch.tensor([2.0, 0.5, 4.0, 0.25]).double()
    straight, other = (em_route(v, *others, eps=0.0) for v in (votes, votes * stretch))
    torch.testing.assert_close(other.activations, straight.activations)
    torch.testing.assert_close(other.coupling, straight.coupling)


def test_a_child_may_be_split_in_two() -> None:
    votes, activations, *betas = draw()
    half = torch.cat([activations[:, :1] / 2, activations[:, :1] / 2, activations[:, 1:]], 1)
    split = em_route(torch.cat([votes[:, :1], votes], 1), half, *betas)
    whole = em_route(votes, activations, *betas)
    torch.testing.assert_close(split.capsules, whole.capsules)
    torch.testing.assert_close(split.activations, whole.activations)


def test_a_child_that_is_off_has_no_influence() -> None:
    votes, activations, *betas = draw()
    more = torch.cat([votes, 9 * votes[:, :1]], 1)
    off = torch.cat([activations, 0 * activations[:, :1]], 1)
    torch.testing.assert_close(
        em_route(more, off, *betas)[:2], em_route(votes, activations, *betas)[:2]
    )


def test_one_parent_takes_all() -> None:
    routed = em_route(*draw(parents=1))
    assert (routed.coupling == 1).all()
    assert ((routed.activations > 0) & (routed.activations < 1)).all()


def test_lambda_rises_as_the_authors_let_it() -> None:
    assert lambda_schedule(0.01, 3) == pytest.approx([0.0005, 0.000975, 0.00142625])


def test_module_equals_function() -> None:
    votes, activations, *_ = draw()
    routing = create_routing("em", 6, 3, 4, beta_u=0.3, beta_a=-40.0, final_lambda=0.05).double()
    betas = torch.full((3,), 0.3).double(), torch.full((3,), -40.0).double()
    expected = em_route(votes, activations, *betas, final_lambda=0.05)
    torch.testing.assert_close(routing(votes, activations), expected, rtol=1e-6, atol=1e-6)
    # Without activations, all children are there.
    torch.testing.assert_close(routing(votes), routing(votes, torch.ones(2, 6).double()))


def test_gradcheck() -> None:
    votes, activations, beta_u, beta_a = draw()
    inputs = [votes[:1, :3, :2, :2], activations[:1, :3], beta_u[:2], beta_a[:2]]
    inputs = [each.clone().requires_grad_() for each in inputs]
    assert torch.autograd.gradcheck(
        lambda *each: em_route(*each, lambdas=[0.5, 0.7, 0.9], smoothing=0.1)[:2], inputs
    )


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="iterations must be an integer of at least 1, got 0"):
        create_routing("em", 2, 2, 2, iterations=0)
    with pytest.raises(ValueError, match="final_lambda must be positive"):
        create_routing("em", 2, 2, 2, final_lambda=0.0)
    with pytest.raises(ValueError, match="3 iterations need 3 lambdas, got 1"):
        em_route(VOTES, ACTIVATIONS, BETA_U, BETA_A, lambdas=[1.0])
