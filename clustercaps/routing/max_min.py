"""Max-min routing: dynamic routing with couplings stretched over the whole range of 0 to 1.

Zhao, Kleinhans, Sandhu, Patel and Unnikrishnan, "Capsule networks with max-min normalization",
arXiv 1903.09662, 2019. The softmax of dynamic routing keeps couplings near 1 / parents and makes
them share a sum of 1; here the highest logit gets q and the lowest p, whatever the others:

    b_ij = 0,  c_ij = q                                         for every image anew
    repeat T times:
        from the second time on:
            c_ij = p + (b_ij - min b) / (max b - min b) (q - p)
        v_j  = squash(sum_i c_ij u_ij)
        b_ij = b_ij + <u_ij, v_j>

The paper does not say clearly along which axis the smallest and the largest are taken. "parents",
for each child, takes the place of the softmax and is the default; "children", for each parent, is
the other reading. Logits that are all equal are what routing starts from, and count q.

Votes then add up with weights near 1, not near 1 / parents: start their matrices ten times smaller.
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
        iterations: Times that parents are computed (T).
        axis: What the smallest and the largest logit are of: "parents" or "children".
        lower: Coupling of the smallest logit (p).
        upper: Coupling of the largest logit, and of all in the first iteration (q).

    Returns:
        Parents whose lengths, below 1, are their activations, and the couplings [B, I, J, ...].
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
    """Logits stretched to 0 for the smallest along an axis and 1 for the largest; 1 if all tie."""
    low, high = logits.amin(dim, keepdim=True), logits.amax(dim, keepdim=True)
    # What rounding alone makes of equal logits is a tie as well.
    rounding = 8 * torch.finfo(logits.dtype).eps * torch.maximum(low.abs(), high.abs())
    # Below the smallest value here, the slope of the quotient is no longer finite.
    apart = (high - low) > rounding.clamp(min=1e-20)
    # A safe divisor before the choice: the branch not taken must not give NaN gradients.
    stretched = (logits - low) / torch.where(apart, high - low, 1)
    return torch.where(apart, stretched, 1)


def check_max_min(iterations: int, axis: str, lower: float, upper: float) -> None:
    """Refuse options that make no routing."""
    at_least("iterations", iterations, 1)
    if axis not in AXES:
        raise ValueError(unknown("axis", axis, AXES))
    if not 0 <= lower < upper:
        raise ValueError(f"need 0 <= lower < upper, got lower={lower} and upper={upper}")


class MaxMinRouting(Routing):
    """Max-min routing as a module, without learned numbers.

    Args:
        children: Children that vote for a parent (I).
        parents: Parents (J).
        dim: Numbers in a parent capsule (D).
        iterations: Times that parents are computed.
        axis: What the smallest and the largest logit are of: "parents" or "children".
        lower: Coupling of the smallest logit.
        upper: Coupling of the largest logit.
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
        """Mirror of `max_min_route`."""
        return max_min_route(
            votes,
            iterations=self.iterations,
            axis=self.axis,
            lower=self.lower,
            upper=self.upper,
        )
