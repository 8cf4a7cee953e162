import pytest
import torch
from helpers.golden import ATTENTION, assert_golden, fill
from torch.nn.utils import prune

from clustercaps.functional import star_route
from clustercaps.routing import create_routing
from clustercaps.routing.star import StarWeights, decide, logistic_noise, router_logits

GOLDEN = ATTENTION["star_reconstruction"]


def weights_of_the_golden_values() -> StarWeights:
    return StarWeights(
        hidden=fill(4, 4, step=0.29, start=0.1),
        hidden_bias=fill(4, step=0.8, start=0.3),
        attention=fill(4, 4, step=0.43, start=0.6),
        attention_bias=fill(4, step=0.5, start=0.9),
        router=fill(4, 2, step=0.9, start=2.0),
        router_bias=torch.tensor([2.3, 0.8]).double(),
    )


def golden_votes() -> torch.Tensor:
    poses, matrices = fill(3, 2, 2, step=0.61, start=0.05), fill(3, 2, 2, 2, step=0.37, start=0.2)
    return torch.einsum("nab,nmbc->nmac", poses, matrices).flatten(2).unsqueeze(0)


def with_bias(weights: StarWeights, on: float, off: float) -> StarWeights:
    return weights._replace(router_bias=torch.tensor([on, off]).double())


def test_golden_values() -> None:
    votes, weights = golden_votes(), weights_of_the_golden_values()
    poses, activations, coupling = star_route(votes, weights)
    assert activations is None
    assert_golden(poses[0], GOLDEN["pose"])
    decisions = decide(router_logits(votes, weights), None, 1.0)[0]
    assert decisions.tolist() == GOLDEN["decision"]
    attention = torch.tensor(GOLDEN["attention"]).double() * decisions.unsqueeze(2)
    torch.testing.assert_close(coupling[0], attention / attention.sum(0))


def test_all_routes_on_give_the_mean_by_attention() -> None:
    votes = golden_votes()
    attention = torch.tensor(GOLDEN["attention"]).double()
    poses = star_route(votes, with_bias(weights_of_the_golden_values(), 20.0, -20.0)).capsules
    torch.testing.assert_close(poses[0], (attention * votes[0]).sum(0) / attention.sum(0))


def test_all_routes_off_give_zero_and_finite_gradients() -> None:
    votes = golden_votes().requires_grad_()
    weights = with_bias(weights_of_the_golden_values(), -20.0, 20.0)
    weights = StarWeights(*(each.clone().requires_grad_() for each in weights))
    poses = star_route(votes, weights).capsules
    assert (poses == 0).all()
    for gradient in torch.autograd.grad(poses.sum(), [votes, *weights]):
        assert gradient.isfinite().all()


def test_the_decision_has_the_gradient_of_the_soft_one() -> None:
    logits = torch.randn(50, dtype=torch.float64, requires_grad=True)
    noise, upstream = logistic_noise(logits), torch.randn(50).double()
    hard, soft = decide(logits, noise, 0.7), ((logits + noise) / 0.7).sigmoid()
    assert set(hard.tolist()) == {0.0, 1.0}
    gradients = [torch.autograd.grad(each, logits, upstream)[0] for each in (hard, soft)]
    torch.testing.assert_close(*gradients)


def test_gradcheck_of_the_attention() -> None:
    # The hard decisions, all on, are constant around here, and their soft gradient is nearly 0.
    weights = with_bias(weights_of_the_golden_values(), 60.0, -60.0)
    inputs = [each.clone().requires_grad_() for each in (golden_votes(), *weights[:4])]
    assert torch.autograd.gradcheck(
        lambda votes, *four: star_route(votes, StarWeights(*four, *weights[4:])).capsules,  # type: ignore[call-arg]
        inputs,
    )


def test_noisy_in_training_and_repeatable_in_evaluation() -> None:
    votes = torch.randn(2, 20, 3, 4)
    routing = create_routing("star", 20, 3, 4)
    routing.eval()
    assert routing(votes).capsules.equal(routing(votes).capsules)
    routing.train()
    assert not routing(votes).capsules.equal(routing(votes).capsules)


def test_noise_is_logistic() -> None:
    noise = logistic_noise(torch.empty(200_000))
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0, abs=0.02)
    assert noise.std().item() == pytest.approx(torch.pi / 3**0.5, rel=0.02)


def test_routes_start_open() -> None:
    routing = create_routing("star", 20, 3, 16).eval()
    routed = routing(0.1 * torch.randn(2, 20, 3, 16))
    assert (routed.coupling > 0).float().mean() > 0.9
    # Attention, two layers of 16, and a router with two outputs.
    assert sum(p.numel() for p in routing.parameters()) == 578


def test_bad_temperature_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature must be positive"):
        create_routing("star", 2, 2, 2, temperature=0.0)


def test_hooks_that_would_not_run_are_refused() -> None:
    routing = create_routing("star", 3, 2, 4)
    votes = torch.randn(1, 3, 2, 4)
    before = routing.eval()(votes).capsules
    prune.l1_unstructured(routing.attention, "weight", 0.5)
    with pytest.raises(RuntimeError, match="their hooks would not run"):
        routing(votes)
    prune.remove(routing.attention, "weight")
    assert not torch.equal(routing(votes).capsules, before)
