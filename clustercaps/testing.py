"""Checks of properties that every routing must have, for our tests and for your own routings.

Exports `assert_routing_contract` and its individual checks, a comparison of a fast path with its
reference (`assert_matches_reference`) and a measure of equivariance (`equivariance_error`).

    import clustercaps as cc

    cc.testing.assert_routing_contract(lambda: MyRouting(children=6, parents=3, dim=4))

A routing is a module from votes [B, children, parents, dim, *positions] to `Routed`; see
`clustercaps.routing.base`.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from clustercaps.routing import Routing

__all__ = [
    "assert_close",
    "assert_competition",
    "assert_finite",
    "assert_matches_reference",
    "assert_order_does_not_matter",
    "assert_routing_contract",
    "draw_input",
    "equivariance_error",
]

# Degenerate inputs for every routing, as functions of normally distributed votes.
EXTREMES: dict[str, Callable[[Tensor], Tensor]] = {
    "ordinary": lambda votes: votes,
    "zero": torch.zeros_like,
    "identical votes": lambda votes: votes[:, :1].expand_as(votes),
    "scaled by 1e4": lambda votes: votes * 1e4,
    "scaled by 1e-4": lambda votes: votes * 1e-4,
}


def assert_close(name: str, actual: Tensor, expected: Tensor, ratio: float) -> None:
    """Compare by relative root-mean-square error, which a single wrong element affects strongly."""
    if actual.shape != expected.shape:
        raise AssertionError(f"{name}: shape {actual.shape}, expected {expected.shape}")
    actual, expected = actual.detach().double(), expected.detach().double()
    error = (actual - expected).square().mean().sqrt()
    size = expected.square().mean().sqrt()
    # Empty tensors have no error; if the reference is zero, the error is absolute.
    relative = 0.0 if not actual.numel() else float(error / size if size > 0 else error)
    if not relative <= ratio:
        raise AssertionError(f"{name}: relative error {relative:.3e}, allowed {ratio:.1e}")


def assert_finite(name: str, *tensors: Tensor | None) -> None:
    """Raise an error if there is a NaN or infinity."""
    for tensor in tensors:
        if tensor is not None and not tensor.isfinite().all():
            bad = int((~tensor.isfinite()).sum())
            raise AssertionError(f"{name}: {bad} of {tensor.numel()} values are not finite")


def draw_input(
    routing: Routing,
    batch: int = 2,
    positions: Sequence[int] = (),
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Random arguments for a routing: votes, and activations and poses if it takes them."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, *positions, generator=generator, dtype=dtype)

    children, parents = routing.children_count, routing.parents_count
    inputs = {"votes": draw(batch, children, parents, routing.dim)}
    if routing.takes_activations:
        logits = draw(batch, children)
        inputs["activations"] = logits if routing.activations_are_logits else logits.sigmoid()
    if routing.takes_poses:
        inputs["poses"] = draw(batch, children, getattr(routing, "in_dim", routing.dim))
    return inputs


def assert_competition(routing: Routing, tolerance: float = 1e-5, seed: int = 0) -> None:
    """Check that coupling coefficients are non-negative and sum to 1 over the declared axis."""
    coupling = routing(**draw_input(routing, positions=(2,), seed=seed)).coupling
    if not (coupling >= 0).all():
        raise AssertionError(f"a coupling coefficient is negative: {float(coupling.min())}")
    if routing.competes_over is not None:
        total = coupling.detach().sum(1 if routing.competes_over == "children" else 2)
        farthest = float(total.flatten()[(total - 1).abs().argmax()])
        if not abs(farthest - 1) <= tolerance:
            raise AssertionError(
                f"coupling coefficients must sum to 1 over the {routing.competes_over}, which "
                f"competes_over declares; a sum is {farthest:.4g}"
            )


def assert_order_does_not_matter(routing: Routing, tolerance: float = 1e-5, seed: int = 0) -> None:
    """Check that reversed children give the same capsules, and reversed parents reversed ones."""
    inputs = draw_input(routing, positions=(2,), seed=seed)
    expected = routing(**inputs)
    children = routing(**{name: value.flip(1) for name, value in inputs.items()})
    parents = routing(**{**inputs, "votes": inputs["votes"].flip(2)})
    pairs = [
        (children.capsules, expected.capsules),
        (children.coupling, expected.coupling.flip(1)),
        (parents.capsules, expected.capsules.flip(1)),
        (parents.coupling, expected.coupling.flip(2)),
    ]
    for actual, wanted in pairs:
        torch.testing.assert_close(actual, wanted, rtol=tolerance, atol=tolerance)


def assert_routing_contract(build: Callable[[], Routing], seed: int = 0) -> None:
    """Check everything that must hold for any routing.

    Shapes and dtypes, finite values and gradients on degenerate votes, batches of 0 and 1,
    positions, normalisation, permutations, saving and loading, and devices.

    Args:
        build: Builds a new routing, such as `lambda: MyRouting(children=6, parents=3, dim=4)`.
        seed: Seed of weights and votes.
    """
    torch.manual_seed(seed)
    routing = build().eval()
    _assert_shapes_and_gradients(routing, seed)
    assert_competition(routing, seed=seed)
    if routing.symmetric:
        assert_order_does_not_matter(routing, seed=seed)
    _assert_images_are_independent(routing, seed)
    inputs = draw_input(routing, seed=seed)
    copy = build().eval()
    copy.load_state_dict(routing.state_dict())
    torch.testing.assert_close(copy(**inputs), routing(**inputs), rtol=0, atol=0)
    elsewhere = build().to("meta")(**{name: value.to("meta") for name, value in inputs.items()})
    if elsewhere.capsules.device.type != "meta":
        raise AssertionError("the routing does not compute on the device of its inputs")


def _assert_shapes_and_gradients(routing: Routing, seed: int) -> None:
    children, parents, dim = routing.children_count, routing.parents_count, routing.dim
    for dtype in (torch.float32, torch.float64):
        same = deepcopy(routing).to(dtype)
        for positions in ((), (2, 3)):
            drawn = draw_input(same, positions=positions, dtype=dtype, seed=seed)
            for name, extreme in EXTREMES.items():
                inputs = {k: v.clone() for k, v in drawn.items()}
                inputs["votes"] = extreme(drawn["votes"]).clone()
                if name == "zero" and "activations" in inputs:
                    inputs["activations"].zero_()
                for value in inputs.values():
                    value.requires_grad_()
                capsules, activations, coupling = same(**inputs)
                said = f"{name} votes, {dtype}, positions {positions}"
                wanted = [("capsules", capsules, (2, parents, dim, *positions))]
                if activations is not None:
                    wanted.append(("activations", activations, (2, parents, *positions)))
                flat = (2, children, parents, *positions)
                if coupling.shape != (*flat[:3], dim, *positions):
                    wanted.append(("coupling", coupling, flat))
                for what, tensor, shape in wanted:
                    if tensor.shape != shape or tensor.dtype != dtype:
                        raise AssertionError(
                            f"{said}: {what} are {tuple(tensor.shape)} {tensor.dtype}, "
                            f"expected {shape} {dtype}"
                        )
                total = capsules.square().sum()
                if activations is not None:
                    total = total + activations.square().sum()
                learned = [*inputs.values(), *same.parameters()]
                gradients = torch.autograd.grad(total, learned, allow_unused=True)
                assert_finite(said, capsules, activations, coupling, *gradients)


def _assert_images_are_independent(routing: Routing, seed: int) -> None:
    both = draw_input(routing, batch=2, seed=seed)
    together = routing(**both).capsules
    alone = routing(**{name: value[:1] for name, value in both.items()}).capsules
    torch.testing.assert_close(alone, together[:1], rtol=1e-5, atol=1e-5)
    if routing(**{name: value[:0] for name, value in both.items()}).capsules.shape[0] != 0:
        raise AssertionError("a batch of 0 must give a batch of 0")


def assert_matches_reference(
    fast: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    ratio: float = 1e-5,
) -> None:
    """Check that a faster path gives the values and all gradients of the reference.

    Args:
        fast: The function to check, from the inputs to one tensor.
        reference: The plain function, called with the inputs in float64.
        inputs: Tensors; gradients of those that require them are compared.
        ratio: Allowed relative root-mean-square error.
    """
    exact = [x.detach().double().requires_grad_(x.requires_grad) for x in inputs]
    tried = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    expected, actual = reference(*exact), fast(*tried)
    assert_close("output", actual, expected, ratio)
    # Fixed, uneven weights, so that no gradient is constant by accident.
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
    """Relative difference of `layer(transform(x))` and `transform(layer(x))`, without the border.

    Args:
        layer: A module from feature maps to feature maps.
        x: Its input; `transform` acts on the last two axes of input and output.
        transform: A transformation, such as `lambda maps: maps.rot90(1, (-2, -1))`.
        margin: Positions to ignore at each border of the output.
    """
    expected, actual = transform(layer(x)), layer(transform(x))
    if margin:
        inside = slice(margin, -margin)
        expected, actual = expected[..., inside, inside], actual[..., inside, inside]
    return float((actual - expected).square().mean().sqrt() / expected.square().mean().sqrt())
