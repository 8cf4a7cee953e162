"""FRMS: routing by mean shift towards high densities of weighted votes.

Zhang, Zhao, Wu and Zhou, "Fast dynamic routing based on weighted kernel density estimation", arXiv
1805.10807, 2018. The routing maximises sum_ij a_i c_ij k(|u_ij - v_j|^2) with the Epanechnikov
kernel k(x) = max(0, 1 - x). Its slope is constant, so a mean shift step is a weighted mean.

The code of the image networks is not public. Mode "coauthor" is the variant that a co-author
released for text (where all a_i = 1):

    b_ij = 0                                    for every image
    repeat T times:
        c_i. = softmax over parents of b_i.
        w_ij = a_i c_ij / sum_i a_i c_ij        a mean over children
        v_j  = sq(sum_i w_ij u_ij)              |sq(x)| = |x|^2 / (1/2 + |x|^2)
        b_ij = b_ij + 1 - |sq(u_ij) - v_j|^2    the kernel, without its cut-off

Mode "weighted" is our reconstruction for poses: the same with the identity instead of sq. Its
capsules are means of votes, so their lengths carry no information, and activations are up to a
head.
"""

import torch
from torch import Tensor

from clustercaps.routing.base import (
    ChildActivations,
    Routed,
    Routing,
    Votes,
    agreement,
    weighted_votes,
)
from clustercaps.routing.squash import SMALLEST, length, squash_half
from clustercaps.utils.errors import at_least, unknown

MODES = ("coauthor", "weighted")


def frms_route(
    votes: Votes,
    activations: ChildActivations | None = None,
    *,
    iterations: int = 3,
    mode: str = "coauthor",
) -> Routed:
    """Route votes [B, I, J, D, *positions] by mean shift.

    Args:
        votes: The vote of every child for every parent.
        activations: Weights of the children; None for 1.
        iterations: Number of iterations (T).
        mode: "coauthor" squashes and returns lengths below 1 as activations; "weighted" does not.

    Returns:
        Parents, their lengths (None for "weighted"), and the coupling coefficients c
        [B, I, J, ...].
    """
    check_frms(iterations, mode)
    logits = votes.new_zeros(*votes.shape[:3], *votes.shape[4:])
    for step in range(iterations):
        coupling = logits.softmax(2)
        capsules = mean_of_votes(coupling, votes, activations)
        if mode == "coauthor":
            capsules = squash_half(capsules, dim=2)
        if step < iterations - 1:
            near = squashed_distances if mode == "coauthor" else squared_distances
            logits = logits + 1 - near(votes, capsules)
    return Routed(capsules, length(capsules, dim=2) if mode == "coauthor" else None, coupling)


def mean_of_votes(coupling: Tensor, votes: Tensor, activations: Tensor | None) -> Tensor:
    """Mean of the votes for each parent, weighted by coupling coefficients and activations."""
    weights = coupling if activations is None else coupling * activations.unsqueeze(2)
    # If all weights are zero, the capsule is zero.
    return weighted_votes(weights / (weights.sum(1, keepdim=True) + SMALLEST), votes)


def squared_distances(votes: Tensor, capsules: Tensor) -> Tensor:
    """Squared distance of every vote from its parent [B, I, J, *positions]."""
    # Not expanded into squares and inner products: large votes would cancel to rounding errors.
    return (votes - capsules.unsqueeze(1)).square().sum(3)


def squashed_distances(votes: Tensor, capsules: Tensor) -> Tensor:
    """The same after `squash_half` of the votes, without copying them."""
    squares = torch.einsum("bijd...,bijd...->bij...", votes, votes)
    # sq(u) = scale u; all lengths are below 1, so the expanded square is accurate.
    scale = (squares + SMALLEST).sqrt() / (0.5 + squares + SMALLEST)
    products = agreement(votes, capsules)
    own = capsules.square().sum(2).unsqueeze(1)
    return scale.square() * squares - 2 * scale * products + own


def check_frms(iterations: int, mode: str) -> None:
    """Raise an error for invalid options."""
    at_least("iterations", iterations, 1)
    if mode not in MODES:
        raise ValueError(unknown("mode", mode, MODES))


class FRMSRouting(Routing):
    """FRMS as a module, without learnable parameters.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        iterations: Number of iterations.
        mode: "coauthor" or "weighted" (our reconstruction for poses).
    """

    takes_activations = True

    def __init__(
        self, children: int, parents: int, dim: int, iterations: int = 3, mode: str = "coauthor"
    ) -> None:
        super().__init__(children, parents, dim)
        check_frms(iterations, mode)
        self.iterations, self.mode = iterations, mode

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `frms_route`."""
        return frms_route(votes, activations, iterations=self.iterations, mode=self.mode)
