"""Properties that a routing must have, as helpers for our tests and for your own routings.

    import clustercaps as cc

    cc.testing.assert_routing_contract(my_routing)

A routing is a function `(votes, *, eps) -> (capsules, weights)` with votes
[B, clusters, K, *parent], capsules [B, *parent] and weights [B, clusters, *parent].
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from clustercaps.routing import Routing

__all__ = [
    "assert_close",
    "assert_finite",
    "assert_matches_reference",
    "assert_permutation_invariant",
    "assert_routing_contract",
    "assert_scale_free_weights",
    "assert_weights_sum_to_one",
    "equivariance_error",
]

# The awkward inputs of every routing: what to do to votes drawn from a normal distribution.
EXTREMES: dict[str, Callable[[Tensor], Tensor]] = {
    "ordinary": lambda votes: votes,
    "zero": torch.zeros_like,
    "identical votes": lambda votes: votes[:, :, :1].expand_as(votes),
    "scaled by 1e4": lambda votes: votes * 1e4,
    "scaled by 1e-4": lambda votes: votes * 1e-4,
}


def assert_close(name: str, actual: Tensor, expected: Tensor, ratio: float) -> None:
    """Compare by relative root mean square error, which one odd element cannot hide in."""
    if actual.shape != expected.shape:
        raise AssertionError(f"{name}: shape {actual.shape}, expected {expected.shape}")
    actual, expected = actual.detach().double(), expected.detach().double()
    error = (actual - expected).square().mean().sqrt()
    size = expected.square().mean().sqrt()
    # Empty tensors have no error, and a reference of zeros is compared absolutely.
    relative = 0.0 if not actual.numel() else float(error / size if size > 0 else error)
    if not relative <= ratio:
        raise AssertionError(f"{name}: relative error {relative:.3e}, allowed {ratio:.1e}")


def assert_finite(name: str, *tensors: Tensor | None) -> None:
    """No NaN and no infinity anywhere."""
    for tensor in tensors:
        if tensor is not None and not tensor.isfinite().all():
            bad = int((~tensor.isfinite()).sum())
            raise AssertionError(f"{name}: {bad} of {tensor.numel()} values are not finite")


def assert_weights_sum_to_one(routing: Routing, votes: Tensor, tolerance: float = 1e-5) -> None:
    """Routing weights are not negative and sum to 1 over the clusters."""
    _, weights = routing(votes)
    if not (weights >= 0).all():
        raise AssertionError(f"a routing weight is negative: {float(weights.min())}")
    total = weights.sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=tolerance)


def assert_permutation_invariant(routing: Routing, votes: Tensor, tolerance: float = 1e-5) -> None:
    """The order of the clusters, and of the votes in a cluster, changes no capsule."""
    expected, weights = routing(votes)
    order = torch.arange(votes.shape[1] - 1, -1, -1, device=votes.device)
    capsules, permuted = routing(votes[:, order])
    torch.testing.assert_close(capsules, expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(permuted, weights[:, order], rtol=tolerance, atol=tolerance)
    capsules, _ = routing(votes.flip(2))
    torch.testing.assert_close(capsules, expected, rtol=tolerance, atol=tolerance)


def assert_scale_free_weights(routing: Routing, votes: Tensor, tolerance: float = 1e-5) -> None:
    """Scaling all votes leaves the weights as they are; holds for routings by spread, at eps 0."""
    _, expected = routing(votes, eps=0.0)
    _, weights = routing(votes * 7.5, eps=0.0)
    torch.testing.assert_close(weights, expected, rtol=tolerance, atol=tolerance)


def assert_routing_contract(
    routing: Routing, shape: Sequence[int] = (2, 3, 4, 2, 5, 3, 3), seed: int = 0
) -> None:
    """Everything that holds for any routing: shapes, dtypes, finite values and gradients, sums.

    Args:
        routing: The function to check.
        shape: Shape of the votes, [B, clusters, K, *parent].
        seed: Seed of the votes.
    """
    batch, clusters, _, *parent = shape
    generator = torch.Generator().manual_seed(seed)
    for dtype in (torch.float32, torch.float64):
        drawn = torch.randn(*shape, generator=generator, dtype=dtype)
        assert_weights_sum_to_one(routing, drawn)
        assert_permutation_invariant(routing, drawn)
        for name, extreme in EXTREMES.items():
            votes = extreme(drawn).clone().requires_grad_()
            capsules, weights = routing(votes)
            if capsules.shape != (batch, *parent) or weights.shape != (batch, clusters, *parent):
                raise AssertionError(
                    f"votes {tuple(shape)} gave capsules {tuple(capsules.shape)} and weights "
                    f"{tuple(weights.shape)}"
                )
            if capsules.dtype != dtype:
                raise AssertionError(f"{dtype} votes gave {capsules.dtype} capsules")
            (gradient,) = torch.autograd.grad(capsules.square().sum(), votes)
            assert_finite(f"{name} votes, {dtype}", capsules, weights, gradient)
    single = torch.randn(1, *shape[1:], generator=generator)
    both = torch.cat([single, single.flip(1)])
    torch.testing.assert_close(routing(single)[0], routing(both)[0][:1], rtol=1e-5, atol=1e-5)
    if routing(single[:0])[0].shape != (0, *parent):
        raise AssertionError("a batch of 0 must give a batch of 0")


def assert_matches_reference(
    fast: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    ratio: float = 1e-5,
) -> None:
    """A faster path gives the reference's values and all its gradients.

    Args:
        fast: The function to check, from the inputs to one tensor.
        reference: The plain function, called with the inputs in float64.
        inputs: Tensors; gradients of those that require them are compared.
        ratio: Relative root mean square error allowed.
    """
    exact = [x.detach().double().requires_grad_(x.requires_grad) for x in inputs]
    tried = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    expected, actual = reference(*exact), fast(*tried)
    assert_close("output", actual, expected, ratio)
    # A fixed, uneven weighting, so that no gradient is constant by accident.
    seed = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).view_as(expected).sin()
    wanted = [x for x in exact if x.requires_grad]
    if not wanted:
        return
    gradients = torch.autograd.grad((expected * seed).sum(), wanted)
    found = torch.autograd.grad(
        (actual.double() * seed).sum(), [x for x in tried if x.requires_grad]
    )
    for number, (ours, theirs) in enumerate(zip(found, gradients, strict=True)):
        assert_close(f"gradient {number}", ours, theirs, ratio)


@torch.no_grad()
def equivariance_error(
    layer: nn.Module, x: Tensor, transform: Callable[[Tensor], Tensor], margin: int = 0
) -> float:
    """How far `layer(transform(x))` is from `transform(layer(x))`, relative, away from the border.

    Args:
        layer: A module from maps to maps.
        x: Its input; `transform` acts on the last two axes of input and output.
        transform: Such as `lambda maps: maps.rot90(1, (-2, -1))`.
        margin: Positions to leave out at each border of the output.
    """
    expected, actual = transform(layer(x)), layer(transform(x))
    if margin:
        inside = slice(margin, -margin)
        expected, actual = expected[..., inside, inside], actual[..., inside, inside]
    return float((actual - expected).square().mean().sqrt() / expected.square().mean().sqrt())
