"""Max-min routing: dynamic routing with coupling coefficients rescaled to the range 0 to 1.

Zhao, Kleinhans, Sandhu, Patel and Unnikrishnan, "Capsule networks with max-min normalization",
arXiv 1903.09662, 2019. The softmax of dynamic routing keeps coupling coefficients near 1 / parents
and makes them sum to 1; here the highest logit gets q and the lowest p, whatever the others:

    b_ij = 0,  c_ij = q                                         for every image
    repeat T times:
        from the second iteration on:
            c_ij = p + (b_ij - min b) / (max b - min b) (q - p)
        v_j  = squash(sum_i c_ij u_ij)
        b_ij = b_ij + <u_ij, v_j>

The paper does not clearly state the axis of min and max. "parents", for each child, replaces the
softmax and is the default; "children", for each parent, is the other reading. If all logits are
equal, as in the first iteration, all coefficients are q.

Votes are then summed with weights near 1, not near 1 / parents: use ten times smaller initial
weights.
"""

import torch
from torch import Tensor

from clustercaps.routing.base import Routed, Routing, Votes, agreement, weighted_votes
from clustercaps.routing.squash import length, squash
from clustercaps.utils.errors import at_least, unknown

AXES = {"children": 1, "parents": 2}


def max_min_route(
    votes: Votes,
    *,
    iterations: int = 3,
    axis: str = "parents",
    lower: float = 0.0,
    upper: float = 1.0,
) -> Routed:
    """Route votes [B, I, J, D, *positions] by agreement, with max-min normalisation.

    Args:
        votes: The vote of every child for every parent.
        iterations: Number of iterations (T).
        axis: Axis of min and max: "parents" or "children".
        lower: Coefficient of the smallest logit (p).
        upper: Coefficient of the largest logit, and of all in the first iteration (q).

    Returns:
        Parents, their lengths, below 1, as activations, and the coupling coefficients
        [B, I, J, ...].
    """
    check_max_min(iterations, axis, lower, upper)
    logits = votes.new_zeros(*votes.shape[:3], *votes.shape[4:])
    coupling = torch.full_like(logits, upper)
    for step in range(iterations):
        if step > 0:
            coupling = lower + max_min(logits, AXES[axis]) * (upper - lower)
        capsules = squash(weighted_votes(coupling, votes), dim=2)
        if step < iterations - 1:
            logits = logits + agreement(votes, capsules)
    return Routed(capsules, length(capsules, dim=2), coupling)


def max_min(logits: Tensor, dim: int) -> Tensor:
    """Logits rescaled to 0 for the smallest and 1 for the largest along an axis; 1 if all equal."""
    low, high = logits.amin(dim, keepdim=True), logits.amax(dim, keepdim=True)
    # Logits that differ only by rounding errors are treated as equal.
    rounding = 8 * torch.finfo(logits.dtype).eps * torch.maximum(low.abs(), high.abs())
    # Below this minimum, the gradient of the quotient is no longer finite.
    apart = (high - low) > rounding.clamp(min=1e-20)
    # A safe divisor: the branch that is not taken must not give NaN gradients.
    stretched = (logits - low) / torch.where(apart, high - low, 1)
    return torch.where(apart, stretched, 1)


def check_max_min(iterations: int, axis: str, lower: float, upper: float) -> None:
    """Raise an error for invalid options."""
    at_least("iterations", iterations, 1)
    if axis not in AXES:
        raise ValueError(unknown("axis", axis, AXES))
    if not 0 <= lower < upper:
        raise ValueError(f"need 0 <= lower < upper, got lower={lower} and upper={upper}")


class MaxMinRouting(Routing):
    """Max-min routing as a module, without learnable parameters.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        iterations: Number of iterations.
        axis: Axis of min and max: "parents" or "children".
        lower: Coefficient of the smallest logit.
        upper: Coefficient of the largest logit.
    """

    competes_over = None

    def __init__(
        self,
        children: int,
        parents: int,
        dim: int,
        iterations: int = 3,
        axis: str = "parents",
        lower: float = 0.0,
        upper: float = 1.0,
    ) -> None:
        super().__init__(children, parents, dim)
        check_max_min(iterations, axis, lower, upper)
        self.iterations, self.axis, self.lower, self.upper = iterations, axis, lower, upper

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `max_min_route`."""
        return max_min_route(
            votes,
            iterations=self.iterations,
            axis=self.axis,
            lower=self.lower,
            upper=self.upper,
        )
