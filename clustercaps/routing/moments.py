"""Moments of votes for routings that fit Gaussians, without saving tensors of the votes' size.

With weights w_i of the children, a mean m and precisions p of the parents,

    weighted_sum       s_d = sum_i w_i V_id
    weighted_squares   q_d = sum_i w_i (V_id - m_d)^2
    weighted_distance  r_i = sum_d p_d (V_id - m_d)^2

Autograd would save one to three tensors of the size of the votes for each, in every iteration. Here
only the arguments are saved, and gradients are in closed form (double backward uses autograd on the
plain formulas). With the gradient g of the result, the gradients with respect to V_id are

    w_i g_d,    2 w_i g_d (V_id - m_d)    and    2 g_i p_d (V_id - m_d).

`VoteMoments` collects these products for all moments of the same votes and computes the gradient
with respect to the votes once, at the end of the backward pass, instead of one such tensor per
moment.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from clustercaps.routing.vote_chunks import Term
from clustercaps.routing.vote_sums import sums_of
from clustercaps.utils.derivatives import plain_gradients, wants_graph
from clustercaps.utils.tracing import plain_only

Votes = Float[Tensor, "batch children parents dim *positions"]
# Values per pair of child and parent, and values per parent.
PerPair = Float[Tensor, "batch children parents *positions"]
PerParent = Float[Tensor, "batch parents dim *positions"]

# Axes of the votes.
CHILDREN, DIMS = 1, 3


def weighted_sum(weights: PerPair, votes: Votes) -> PerParent:
    """sum_i w_i V_i for every parent."""
    return VoteMoments(votes).sum(weights)


def weighted_squares(weights: PerPair, votes: Votes, mean: PerParent) -> PerParent:
    """sum_i w_i (V_i - m)^2 for every parent."""
    return VoteMoments(votes).mean_and_squares(weights, mean.new_zeros(()), mean)[1]


def weighted_distance(votes: Votes, mean: PerParent, precision: PerParent) -> PerPair:
    """sum_d p_d (V_id - m_d)^2 for every child and parent."""
    return VoteMoments(votes).distance(mean, precision)


def drop_tiny(weights: PerPair) -> PerPair:
    """Weights of at most about 1, those below 1e-19 (in float32) replaced by 0.

    A softmax leaves weights so small that they cannot change a sum, but their products are
    subnormal numbers, with which processors compute many times slower. Gradients are unchanged.
    """
    return weights if _plain() else DropTiny.apply(weights)


class VoteMoments:
    """All moments that a routing needs of its votes.

    Args:
        votes: The votes.
    """

    def __init__(self, votes: Votes) -> None:
        self._terms = Terms()
        self._plain = _plain()
        self._votes = votes if self._plain else Collect.apply(votes, self._terms)
        self._mean: Tensor | None = None

    def mean_and_squares(
        self, weights: PerPair, scale: Tensor, offset: Tensor
    ) -> tuple[PerParent, PerParent]:
        """The mean m = scale * weighted_sum + offset, and `weighted_squares` around it.

        Args:
            weights: w.
            scale: In a shape that broadcasts to values per parent.
            offset: Likewise.
        """
        if self._plain:
            return _plain_mean_and_squares(weights, self._votes, scale, offset)
        self._mean, squares = MeanAndSquares.apply(
            weights, self._votes, scale, offset, self._terms, self._key(None)
        )
        return self._mean, squares

    def sum(self, weights: PerPair) -> PerParent:
        """`weighted_sum` of the votes."""
        if self._plain:
            return _plain_sum(weights, self._votes)
        return WeightedSum.apply(weights, self._votes, self._terms)

    def distance(self, mean: PerParent, precision: PerParent) -> PerPair:
        """`weighted_distance` of the votes."""
        if self._plain:
            return _plain_squares(precision, self._votes, mean, DIMS)
        return WeightedDistance.apply(precision, self._votes, mean, self._terms, self._key(mean))

    def _key(self, mean: Tensor | None) -> int:
        """A number that is the same for moments around the same mean, one after the other."""
        if mean is None or mean is not self._mean:
            self._mean = mean
            self._terms.means += 1
        return self._terms.means


class Terms:
    """What the moments of one tensor of votes add to the gradient with respect to the votes.

    Backward passes are told apart by their number: one that asks for a few gradients only may end
    before the gradient with respect to the votes is computed, and must leave nothing for the next.
    """

    def __init__(self) -> None:
        self.means = 0
        self._found: dict[int, list[Term]] = {}

    def add(self, term: Term) -> None:
        """Add a product in the running backward pass."""
        self._found.setdefault(torch._C._current_graph_task_id(), []).append(term)

    def take(self) -> list[Term]:
        """Remove and return all products of the running backward pass."""
        return self._found.pop(torch._C._current_graph_task_id(), [])


class Collect(torch.autograd.Function):
    """The identity; its backward pass follows those of all moments and adds their terms."""

    @staticmethod
    def forward(ctx: Any, votes: Tensor, terms: Terms) -> Tensor:
        """The votes."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(votes)
        ctx.terms = terms
        return votes.view_as(votes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[Tensor | None, None]:
        """The sum of all terms, and of the gradients of plain formulas."""
        terms = ctx.terms.take()
        if not terms:
            return gradient, None
        (votes,) = ctx.saved_tensors
        total = sums_of(votes).add_terms(votes, terms)
        return total if gradient is None else total + gradient, None


class DropTiny(torch.autograd.Function):
    """`drop_tiny` with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor) -> Tensor:
        """Replace tiny weights by 0."""
        return F.threshold(weights, torch.finfo(weights.dtype).tiny ** 0.5, 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient."""
        return gradient


class WeightedSum(torch.autograd.Function):
    """`weighted_sum` with its gradient."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, votes: Tensor, terms: Terms) -> Tensor:
        """Sums over the children."""
        ctx.save_for_backward(weights, votes)
        ctx.terms = terms
        return sums_of(votes).sum_children(votes, weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """For w_i: sum_d g_d V_id."""
        weights, votes = inputs = ctx.saved_tensors
        if wants_graph(gradient):
            needed = ctx.needs_input_grad[:2]
            return *plain_gradients(_plain_sum, inputs, gradient, needed), None
        if ctx.needs_input_grad[1]:
            ctx.terms.add(Term(weights, gradient))
        return sums_of(votes).sum_dims(votes, gradient), None, None


class MeanAndSquares(torch.autograd.Function):
    """A mean and the squares around it, whose gradients need one pass over the votes together."""

    @staticmethod
    def forward(
        ctx: Any,
        weights: Tensor,
        votes: Tensor,
        scale: Tensor,
        offset: Tensor,
        terms: Terms,
        key: int,
    ) -> tuple[Tensor, Tensor]:
        """Two sums over the children."""
        total, mean, squares = sums_of(votes).mean_and_squares(votes, weights, scale, offset)
        ctx.save_for_backward(weights, votes, scale, offset, total, mean)
        ctx.terms, ctx.key = terms, key
        return mean, squares

    @staticmethod
    def backward(ctx: Any, of_mean: Tensor, of_squares: Tensor) -> tuple[Tensor | None, ...]:
        """With g and h for mean and squares, for w_i: sum_d scale g_d V_id + h_d (V_id - m_d)^2."""
        weights, votes, scale, offset, total, mean = ctx.saved_tensors
        if wants_graph(of_mean) or wants_graph(of_squares):
            inputs, needed = ctx.saved_tensors[:4], ctx.needs_input_grad[:4]
            pulls = of_mean, of_squares
            return *plain_gradients(_plain_mean_and_squares, inputs, pulls, needed), None, None
        # The squares depend on the mean: their derivative is -2 sum_i w_i (V_i - m).
        of_mean = of_mean - 2 * of_squares * (total - weights.sum(1).unsqueeze(2) * mean)
        of_total = scale * of_mean
        if ctx.needs_input_grad[1]:
            ctx.terms.add(Term(weights, of_total))
            ctx.terms.add(Term(weights, 2 * of_squares, mean, ctx.key))
        of_weights = sums_of(votes).sum_and_squares_over_dims(votes, mean, of_total, of_squares)
        of_weights += (of_total * mean).sum(2).unsqueeze(1)
        of_scale = (of_mean * total).sum_to_size(scale.shape)
        return of_weights, None, of_scale, of_mean.sum_to_size(offset.shape), None, None


class WeightedDistance(torch.autograd.Function):
    """`weighted_distance` with its gradient."""

    @staticmethod
    def forward(
        ctx: Any, precision: Tensor, votes: Tensor, mean: Tensor, terms: Terms, key: int
    ) -> Tensor:
        """Sums over the dimensions."""
        ctx.save_for_backward(precision, votes, mean)
        ctx.terms, ctx.key = terms, key
        return sums_of(votes).squares_over_dims(votes, mean, precision)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """For p_d: sum_i g_i (V_id - m_d)^2; for m_d: -2 p_d sum_i g_i (V_id - m_d)."""
        precision, votes, mean = ctx.saved_tensors
        if wants_graph(gradient):
            plain = partial(_plain_squares, over=DIMS)
            needed = ctx.needs_input_grad[:3]
            return *plain_gradients(plain, ctx.saved_tensors, gradient, needed), None, None
        gradient = _drop_tiny(gradient)
        if ctx.needs_input_grad[1]:
            ctx.terms.add(Term(gradient, 2 * precision, mean, ctx.key))
        offset, of_precision = sums_of(votes).two_moments(votes, mean, gradient)
        return of_precision, None, -2 * precision * offset, None, None


def _plain_sum(weights: Tensor, votes: Tensor) -> Tensor:
    return (weights.unsqueeze(3) * votes).sum(1)


def _plain_squares(factor: Tensor, votes: Tensor, mean: Tensor, over: int) -> Tensor:
    squares = (votes - mean.unsqueeze(1)).square()
    return (factor.unsqueeze(CHILDREN + DIMS - over) * squares).sum(over)


def _plain_mean_and_squares(
    weights: Tensor, votes: Tensor, scale: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor]:
    mean = scale * _plain_sum(weights, votes) + offset
    return mean, _plain_squares(weights, votes, mean, CHILDREN)


def _drop_tiny(gradient: Tensor) -> Tensor:
    """A gradient per pair without entries below 1e-19 (in float32) of the largest one."""
    if gradient.numel() == 0:
        return gradient
    size = gradient.abs()
    # amax is many times faster than the infinity norm.
    least = size.amax() * torch.finfo(gradient.dtype).tiny ** 0.5
    return gradient.masked_fill(size < least, 0)


def _plain() -> bool:
    """Whether to use the plain formulas, which a compiler fuses itself."""
    return torch.compiler.is_compiling() or plain_only()
