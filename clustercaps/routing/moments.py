"""Moments of votes for routings that fit Gaussians, without saving tensors of the votes' size.

With weights w_i of the children, a mean m and precisions p of the parents,

    weighted_sum       s_d = sum_i w_i V_id
    weighted_squares   q_d = sum_i w_i (V_id - m_d)^2
    weighted_distance  r_i = sum_d p_d (V_id - m_d)^2

Autograd would save one to three tensors of the size of the votes for each, in every iteration. Here
only the arguments are saved, and gradients are in closed form (double backward uses autograd on the
plain formulas). With the gradient g of the result, the last two are derivatives of one expression,
F = sum_id a_i b_d (V_id - m_d)^2, where a is w or g and b is g or p; the gradients with respect to
the other of the two, V and m follow from F. A few images are processed at a time in a shared
buffer: allocating new memory would take longer than the arithmetic.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from clustercaps.utils.derivatives import plain_gradients, wants_graph
from clustercaps.utils.tracing import plain_only

Votes = Float[Tensor, "batch children parents dim *positions"]
# Values per pair of child and parent, and values per parent.
PerPair = Float[Tensor, "batch children parents *positions"]
PerParent = Float[Tensor, "batch parents dim *positions"]

# Axes of the votes.
CHILDREN, DIMS = 1, 3
# Size of the votes that are processed at a time, in bytes.
CHUNK = 4 * 2**20


def weighted_sum(weights: PerPair, votes: Votes) -> PerParent:
    """sum_i w_i V_i for every parent."""
    if _plain():
        return _plain_sum(weights, votes)
    return WeightedSum.apply(weights, votes)


def weighted_squares(weights: PerPair, votes: Votes, mean: PerParent) -> PerParent:
    """sum_i w_i (V_i - m)^2 for every parent."""
    if _plain():
        return _plain_squares(weights, votes, mean, CHILDREN)
    return WeightedSquares.apply(weights, votes, mean, CHILDREN)


def weighted_distance(votes: Votes, mean: PerParent, precision: PerParent) -> PerPair:
    """sum_d p_d (V_id - m_d)^2 for every child and parent."""
    if _plain():
        return _plain_squares(precision, votes, mean, DIMS)
    return WeightedSquares.apply(precision, votes, mean, DIMS)


class WeightedSum(torch.autograd.Function):
    """`weighted_sum` with its gradient."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, votes: Tensor) -> Tensor:
        """Sums over the children."""
        ctx.save_for_backward(weights, votes)
        return _sum_products(votes, weights.unsqueeze(3), over=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """For w_i: sum_d g_d V_id; for V_id: w_i g_d."""
        weights, votes = ctx.saved_tensors
        if wants_graph(gradient):
            return plain_gradients(_plain_sum, (weights, votes), gradient, ctx.needs_input_grad)
        of_weights = _sum_products(votes, gradient.unsqueeze(1), over=3)
        return of_weights, weights.unsqueeze(3) * gradient.unsqueeze(1)


class WeightedSquares(torch.autograd.Function):
    """`weighted_squares`, a sum over children, and `weighted_distance`, a sum over dimensions."""

    @staticmethod
    def forward(ctx: Any, factor: Tensor, votes: Tensor, mean: Tensor, over: int) -> Tensor:
        """The sum of factor (V - m)^2 over an axis; the factor lacks the other axis."""
        ctx.save_for_backward(factor, votes, mean)
        ctx.over = over
        return _sum_squares(votes, mean, factor.unsqueeze(CHILDREN + DIMS - over), over)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Differentiate F, with the factor and the gradient as a and b."""
        factor, votes, mean = inputs = ctx.saved_tensors
        if wants_graph(gradient):
            plain = partial(_plain_squares, over=ctx.over)
            return *plain_gradients(plain, inputs, gradient, ctx.needs_input_grad[:3]), None
        other = CHILDREN + DIMS - ctx.over
        given = gradient.unsqueeze(ctx.over)
        return *_differentiate(votes, mean, given, factor.unsqueeze(other), other), None


def _plain_sum(weights: Tensor, votes: Tensor) -> Tensor:
    return (weights.unsqueeze(3) * votes).sum(1)


def _plain_squares(factor: Tensor, votes: Tensor, mean: Tensor, over: int) -> Tensor:
    squares = (votes - mean.unsqueeze(1)).square()
    return (factor.unsqueeze(CHILDREN + DIMS - over) * squares).sum(over)


def _sum_products(votes: Tensor, factor: Tensor, over: int) -> Tensor:
    """The sum of factor * votes over an axis."""
    chunks = _chunks(votes, votes, factor)
    return torch.cat([torch.mul(v, f, out=room).sum(over) for room, v, f in chunks])


def _sum_squares(votes: Tensor, mean: Tensor, factor: Tensor, over: int) -> Tensor:
    """The sum of factor * (votes - mean)^2 over an axis."""
    sums = []
    for off, v, m, f in _chunks(votes, votes, mean, factor):
        torch.sub(v, m.unsqueeze(1), out=off)
        sums.append(off.square_().mul_(f).sum(over))
    return torch.cat(sums)


def _differentiate(
    votes: Tensor, mean: Tensor, given: Tensor, other: Tensor, over: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of F with respect to one of its factors, the votes and the mean.

    Args:
        votes: V.
        mean: m.
        given: The constant factor, with a singleton axis for what it does not depend on.
        other: The differentiated factor, likewise.
        over: The axis that `other` does not depend on.
    """
    of_votes = torch.empty_like(votes)
    of_other, of_mean = [], []
    for off, v, m, g, o, out in _chunks(votes, votes, mean, given, other, of_votes):
        torch.sub(v, m.unsqueeze(1), out=off)
        pulled = torch.mul(off, g, out=out)
        of_other.append(off.mul_(pulled).sum(over))
        of_mean.append(-pulled.mul_(2 * o).sum(1))
    return torch.cat(of_other), of_votes, torch.cat(of_mean)


def _chunks(votes: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """A buffer for the votes of a few images, and the slices of every tensor for these images."""
    size = max(1, CHUNK // max(1, votes[:1].numel() * votes.element_size()))
    room = torch.empty_like(votes[:size])
    for parts in zip(*(tensor.split(size) for tensor in tensors), strict=True):
        yield room[: len(parts[0])], *parts


def _plain() -> bool:
    """Whether to use the plain formulas, which a compiler fuses itself."""
    return torch.compiler.is_compiling() or plain_only()
