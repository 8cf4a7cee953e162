"""Inverted dot-product attention: parents compete for every child by agreement with its vote.

Tsai, Srivastava, Goh and Salakhutdinov, "Capsules with inverted dot-product attention routing",
ICLR 2020.

    r_ij = 1 / J                                        first iteration
    r_i. = softmax over parents of <p_j, u_ij> / sqrt(D) with p_j of the previous iteration
    p_j  = LN(sum_i r_ij u_ij)                          layer norm over the D entries of a capsule

There are no activations: the norm is the only nonlinearity, and it is omitted for D = 1, where it
would give 0. Its scale and shift are shared by all parents of a layer.

A stack of layers can be iterated in two ways. Sequential: each layer finishes its own iterations
before the next one starts. Concurrent, the authors' choice: after a first pass with equal coupling
coefficients, all layers update simultaneously, each from the children and the parents (`query`) of
the previous pass.
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
    """Sum of the votes weighted by their coupling coefficients, before the norm, and the latter.

    Children are independent here, so sums over parts of the children can be added up.

    Args:
        votes: The vote of every child for every parent.
        query: The parents to compare the votes with; None for equal coupling coefficients.
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
    """Layer norm of every capsule; capsules of dimension 1 are unchanged."""
    if capsules.shape[2] == 1:
        return capsules
    # Not `layer_norm`, which needs its axis last: moving it there and back would copy the capsules
    # twice.
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
        query: Parents for the first iteration; None for equal coupling coefficients. Concurrent
            routing is one iteration with the parents of the previous pass.
        iterations: Updates of the parents from the same votes.
        weight: Scale of the layer norm.
        bias: Shift of the layer norm.
        eps: Added to the variance by the layer norm.

    Returns:
        Parents and the coupling coefficients of the last iteration; there are no activations.
    """
    at_least("iterations", iterations, 1)
    for _ in range(iterations):
        total, coupling = attend(votes, query)
        query = norm_capsules(total, weight, bias, eps)
    assert query is not None
    return Routed(query, None, coupling)


class InvertedAttentionRouting(Routing):
    """Inverted attention as a module, iterated within the layer (sequential).

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        iterations: Number of iterations; the first has equal coupling coefficients.
        norm: Learn scale and shift of the layer norm.
    """

    def __init__(
        self, children: int, parents: int, dim: int, iterations: int = 2, norm: bool = True
    ) -> None:
        super().__init__(children, parents, dim)
        at_least("iterations", iterations, 1)
        self.iterations = iterations
        # Capsules of dimension 1 have no norm.
        learned = norm and dim > 1
        self.weight = nn.Parameter(torch.ones(dim)) if learned else None
        self.bias = nn.Parameter(torch.zeros(dim)) if learned else None

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `inverted_attention_route`."""
        return inverted_attention_route(
            votes, iterations=self.iterations, weight=self.weight, bias=self.bias
        )
