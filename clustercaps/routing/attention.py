"""Attention routing: one softmax over the children of a parent, with learned queries.

Choi, Seo, Im and Kang, "Attention routing between capsules" (AR-CapsNet), ICCV workshops 2019.

    e_nj = sum_m <u_mj, T_jn,m>             depends on all votes for the parent, not only the n-th
    c_.j = softmax over children of e_.j
    s_j  = sum_n c_nj u_nj

T is learned, [D, I, I] for each parent; its last axis is the child that is scored. Parents do not
compete, and there are no iterations. `clustercaps.layers.activation.CapsuleActivation`, an affine
map and tanh, turns s_j into a capsule.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.routing.base import Routed, Routing, Votes
from clustercaps.routing.moments import weighted_sum


def attention_route(votes: Votes, weight: Float[Tensor, "parents dim children children"]) -> Routed:
    """Route votes [B, I, J, D, *positions] by attention over the children.

    Args:
        votes: The vote of every child for every parent.
        weight: The score weights (T), [J, D, I, I]: first the voting child, then the scored child.

    Returns:
        Weighted means of the votes, without activations, and the coupling coefficients.
    """
    coupling = attention_scores(votes, weight).softmax(1)
    return Routed(weighted_sum(coupling, votes), None, coupling)


def attention_scores(
    votes: Votes, weight: Float[Tensor, "parents dim children children"]
) -> Float[Tensor, "batch children parents *positions"]:
    """The scores e of all children, for every parent."""
    if votes.ndim == 4:
        return torch.einsum("bmjd,jdmn->bnj", votes, weight)
    # One product for every image and parent, with positions last, where they are in memory: einsum
    # would move them and copy the votes several times.
    of_parent = votes.flatten(4).transpose(1, 2).flatten(2, 3)
    scores = torch.matmul(weight.permute(0, 3, 2, 1).flatten(2), of_parent)
    return scores.transpose(1, 2).unflatten(3, votes.shape[4:])


class AttentionRouting(Routing):
    """Attention routing as a module, with learnable score weights.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
    """

    competes_over = "children"
    # Every child and every parent has its own initial weights.
    symmetric = False

    def __init__(self, children: int, parents: int, dim: int) -> None:
        super().__init__(children, parents, dim)
        self.weight = nn.Parameter(torch.empty(parents, dim, children, children))
        # Glorot's bound, the scores of all parents being one convolution, as in the released code.
        bound = math.sqrt(6 / (children * dim * (1 + parents)))
        nn.init.uniform_(self.weight, -bound, bound)

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `attention_route`."""
        return attention_route(votes, self.weight)
