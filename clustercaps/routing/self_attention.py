"""Self-attention routing: votes are weighted by their agreement with the other votes, in one pass.

Mazzia, Salvetti and Chiaberge, "Efficient-CapsNet: capsule network with self-attention routing",
Scientific Reports 11, 2021.

    e_ij = sum_k <u_ij, u_kj> / sqrt(D)         over all children k, including i
    c_i. = softmax over parents of e_i.
    s_j  = sum_i (c_ij + b_ij) u_ij             b is learned and added after the softmax
    v_j  = squash(s_j)                          |v_j| = 1 - exp(-|s_j|)

The sum over k can be moved inside, e_ij = <u_ij, sum_k u_kj> / sqrt(D), so the cost is linear in
the number of children, not quadratic. With b, the coupling coefficients no longer sum to 1.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.routing.base import Routed, Routing, Votes, agreement, weighted_votes
from clustercaps.routing.squash import length, squash_exponential


def self_attention_route(
    votes: Votes, bias: Float[Tensor, "children parents"] | None = None
) -> Routed:
    """Route votes [B, I, J, D, *positions] by their agreement with each other.

    Args:
        votes: The vote of every child for every parent.
        bias: Added to the coupling coefficients after the softmax.

    Returns:
        Parents, their lengths, below 1, as activations, and the coupling coefficients with bias.
    """
    scores = agreement(votes, votes.sum(1)) / math.sqrt(votes.shape[3])
    coupling = scores.softmax(2)
    if bias is not None:
        coupling = coupling + bias.view(1, *bias.shape, *[1] * (votes.ndim - 4))
    capsules = squash_exponential(weighted_votes(coupling, votes), dim=2)
    return Routed(capsules, length(capsules, dim=2), coupling)


class SelfAttentionRouting(Routing):
    """Self-attention routing as a module; the bias of the coupling coefficients starts at 0.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        bias: Learn a bias of the coupling coefficients.
    """

    def __init__(self, children: int, parents: int, dim: int, bias: bool = True) -> None:
        super().__init__(children, parents, dim)
        self.bias = nn.Parameter(torch.zeros(children, parents)) if bias else None

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `self_attention_route`."""
        return self_attention_route(votes, self.bias)
