"""Attention routing: one softmax over the children of a parent, from learned queries.

Choi, Seo, Im and Kang, "Attention routing between capsules" (AR-CapsNet), ICCV workshops 2019.

    e_nj = sum_m <u_mj, T_jn,m>             every vote for the parent is read, not only the n-th
    c_.j = softmax over children of e_.j
    s_j  = sum_n c_nj u_nj

T is learned, [D, I, I] for each parent: its last axis says for which child the score is. Parents do
not compete: each makes the best of its own votes. Nothing is iterated. What makes a capsule of s_j,
an affine map and tanh, is `clustercaps.activation.CapsuleActivation`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.routing.base import Routed, Routing, Votes, weighted_votes


def attention_route(votes: Votes, weight: Float[Tensor, "parents dim children children"]) -> Routed:
    """Route votes [B, I, J, D, *positions] by attention over the children.

    Args:
        votes: The vote of every child for every parent.
        weight: What the scores of the children are read with (T): [J, D, I, I], the child that
            votes and then the child that is scored.

    Returns:
        Weighted means of the votes, without activations, and the couplings.
    """
    scores = torch.einsum("bmjd...,jdmn->bnj...", votes, weight)
    coupling = scores.softmax(1)
    return Routed(weighted_votes(coupling, votes), None, coupling)


class AttentionRouting(Routing):
    """Attention routing as a module with its learned scores.

    Args:
        children: Children that vote for a parent (I).
        parents: Parents (J).
        dim: Numbers in a parent capsule (D).
    """

    competes_over = "children"
    # Every child and every parent has scores of its own from the start.
    symmetric = False

    def __init__(self, children: int, parents: int, dim: int) -> None:
        super().__init__(children, parents, dim)
        self.weight = nn.Parameter(torch.empty(parents, dim, children, children))
        # Glorot's bound, the scores of all parents being one convolution, as in the released code.
        bound = math.sqrt(6 / (children * dim * (1 + parents)))
        nn.init.uniform_(self.weight, -bound, bound)

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Mirror of `attention_route`."""
        return attention_route(votes, self.weight)
