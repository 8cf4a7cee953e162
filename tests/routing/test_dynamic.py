from collections.abc import Callable

import pytest
import torch
from helpers.derivatives import FORMS
from helpers.golden import ITERATIVE, assert_golden, fill

from clustercaps.functional import dynamic_route, squash, squash_unsquared
from clustercaps.routing import Routed, chunks, create_routing
from clustercaps.routing.dynamic import plain_dynamic_route
from clustercaps.routing.squash import squash_gradient

VOTES = fill(1, 3, 2, 2)
BIAS = torch.tensor([[0.3, -0.2, 0.1, 0.5], [0.0, 0.4, -0.6, 0.2], [0.1, 0.1, 0.1, 0.1]]).double()


def plain_route(votes: torch.Tensor, **options: object) -> Routed:
    defaults = {"bias": None, "iterations": 3, "leaky": False, "detach_inner": False}
    capsules, coupling = plain_dynamic_route(votes, **{**defaults, **options})
    return Routed(capsules, None, coupling)


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


@pytest.mark.parametrize("positions", [(), (2, 3)])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"iterations": 1},
        {"iterations": 2, "leaky": True},
        {"bias": BIAS},
        {"bias": BIAS, "leaky": True, "detach_inner": True},
        {"detach_inner": True},
    ],
)
def test_closed_form_against_plain_equations(
    options: dict[str, object],
    batch: int,
    positions: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two images at a time, so that the last chunk of three is a smaller one.
    monkeypatch.setattr(chunks, "CHUNK", 2 * 5 * 3 * 4 * 8 * (6 if positions else 1))
    votes = torch.randn(batch, 5, 3, 4, *positions, dtype=torch.float64, requires_grad=True)
    given = [votes]
    if "bias" in options:
        given.append(BIAS.clone().requires_grad_())
        options = {**options, "bias": given[1]}
    fast, plain = dynamic_route(votes, **options), plain_route(votes, **options)
    torch.testing.assert_close(fast.capsules, plain.capsules)
    torch.testing.assert_close(fast.coupling, plain.coupling)
    assert fast.coupling.requires_grad == plain.coupling.requires_grad
    pulls = [torch.randn_like(t) for t in (plain.capsules, plain.coupling)]
    # The parents alone, the coupling coefficients alone, and both.
    for chosen in ([0], [1], [0, 1]):
        if 1 in chosen and not plain.coupling.requires_grad:
            continue
        gradients = [
            torch.autograd.grad(
                [(routed.capsules, routed.coupling)[n] for n in chosen],
                given,
                [pulls[n] for n in chosen],
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            for routed in (fast, plain)
        ]
        for actual, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"leaky": True, "iterations": 2}])
def test_derivatives_in_every_form(form: str, options: dict[str, object]) -> None:
    votes, bias = torch.randn(1, 3, 2, 2, dtype=torch.float64), BIAS[:2, :2].contiguous()

    def capsules_of(route: Callable[..., Routed]) -> Callable[..., torch.Tensor]:
        def run(votes: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            routed = route(votes, bias=bias, **options)
            return torch.cat([routed.capsules.flatten(1), routed.coupling.flatten(1)], 1)

        return run

    fast, plain = (FORMS[form](capsules_of(r), [votes, bias]) for r in (dynamic_route, plain_route))
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)


def test_gradient_of_identical_and_zero_votes_is_finite() -> None:
    for votes in (torch.zeros(2, 4, 3, 2), torch.ones(2, 4, 3, 2), 1e4 * torch.ones(1, 4, 3, 2)):
        votes.requires_grad_()
        dynamic_route(votes).capsules.sum().backward()
        assert votes.grad is not None
        assert votes.grad.isfinite().all()


def test_squash_gradient() -> None:
    capsules = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    pull = torch.randn_like(capsules)
    (expected,) = torch.autograd.grad(squash(capsules, dim=1), capsules, pull)
    torch.testing.assert_close(squash_gradient(capsules.detach(), pull, dim=1), expected)


def test_memory_of_the_votes_is_not_kept_twice() -> None:
    votes = torch.randn(2, 50, 3, 8, requires_grad=True)
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        dynamic_route(votes)
    large = {t.data_ptr() for t in kept if t.numel() >= votes.numel()}
    assert large == {votes.data_ptr()}
