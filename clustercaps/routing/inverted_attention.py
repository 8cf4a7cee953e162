"""Inverted dot-product attention: parents compete for every child by how well its vote fits them.

Tsai, Srivastava, Goh and Salakhutdinov, "Capsules with inverted dot-product attention routing",
ICLR 2020.

    r_ij = 1 / J                                        first iteration
    r_i. = softmax over parents of <p_j, u_ij> / sqrt(D) with the parents p_j of the one before
    p_j  = LN(sum_i r_ij u_ij)                          layer norm over the D numbers of a capsule

There are no activations: the norm is the only non-linearity, and it is left out for D = 1, where it
would give 0. Its scale and shift are shared by all parents of a layer.

Two ways to iterate a stack of layers. Sequential: each layer repeats its own update before the next
one starts. Concurrent, the authors' choice: after a first pass with equal couplings, all layers
update at once, again and again, each from the children and the parents (`query`) of the last pass.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.routing.base import Routed, Routing, Votes, agreement, weighted_votes
from clustercaps.utils.errors import at_least
from clustercaps.utils.precision import wide_dtype

Parents = Float[Tensor, "batch parents dim *positions"]
EPS = 1e-5


def attend(
    votes: Votes, query: Parents | None
) -> tuple[Parents, Float[Tensor, "batch children parents *positions"]]:
    """Sum of the votes weighted by their couplings, before the norm, and the couplings.

    Every child is on its own here, so sums of parts of the children add up to the sum of all.

    Args:
        votes: The vote of every child for every parent.
        query: The parents that the votes are compared with; all parents get an equal share of
            every child without them.
    """
    if query is None:
        shape = (*votes.shape[:3], *votes.shape[4:])
        coupling = votes.new_full(shape, 1 / votes.shape[2])
    else:
        coupling = (agreement(votes, query) / math.sqrt(votes.shape[3])).softmax(2)
    return weighted_votes(coupling, votes), coupling


def norm_capsules(
    capsules: Parents,
    weight: Float[Tensor, " dim"] | None = None,
    bias: Float[Tensor, " dim"] | None = None,
    eps: float = EPS,
) -> Parents:
    """Layer norm of every capsule; capsules of one number are left as they are."""
    if capsules.shape[2] == 1:
        return capsules
    # Written out, because `layer_norm` wants its axis last: moving it there and back would copy
    # the capsules twice.
    wide = capsules.to(wide_dtype(capsules.dtype))
    centred = wide - wide.mean(2, keepdim=True)
    normed = centred * (centred.square().mean(2, keepdim=True) + eps).rsqrt()
    shape = (-1, *[1] * (capsules.ndim - 3))
    if weight is not None:
        normed = normed * weight.view(shape)
    if bias is not None:
        normed = normed + bias.view(shape)
    return normed.to(capsules.dtype)


def inverted_attention_route(
    votes: Votes,
    query: Parents | None = None,
    *,
    iterations: int = 1,
    weight: Float[Tensor, " dim"] | None = None,
    bias: Float[Tensor, " dim"] | None = None,
    eps: float = EPS,
) -> Routed:
    """Route votes [B, I, J, D, *positions] by inverted attention.

    Args:
        votes: The vote of every child for every parent.
        query: Parents that the first iteration compares the votes with. Without it the first
            iteration has equal couplings. Concurrent routing is one iteration with the parents of
            the pass before.
        iterations: Updates of the parents from the same votes.
        weight: Scale of the layer norm.
        bias: Shift of the layer norm.
        eps: Added to the variance by the layer norm.

    Returns:
        Parents and their couplings in the last iteration; there are no activations.
    """
    at_least("iterations", iterations, 1)
    for _ in range(iterations):
        total, coupling = attend(votes, query)
        query = norm_capsules(total, weight, bias, eps)
    assert query is not None
    return Routed(query, None, coupling)


class InvertedAttentionRouting(Routing):
    """Inverted attention as a module, iterated within the layer (sequential routing).

    Args:
        children: Children that vote for a parent (I).
        parents: Parents (J).
        dim: Numbers in a parent capsule (D).
        iterations: Times that parents are computed; the first has equal couplings.
        norm: Learn scale and shift of the layer norm.
    """

    def __init__(
        self, children: int, parents: int, dim: int, iterations: int = 2, norm: bool = True
    ) -> None:
        super().__init__(children, parents, dim)
        at_least("iterations", iterations, 1)
        self.iterations = iterations
        # One number has no norm, and so nothing to learn.
        learned = norm and dim > 1
        self.weight = nn.Parameter(torch.ones(dim)) if learned else None
        self.bias = nn.Parameter(torch.zeros(dim)) if learned else None

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Mirror of `inverted_attention_route`."""
        return inverted_attention_route(
            votes, iterations=self.iterations, weight=self.weight, bias=self.bias
        )
