"""The iterations of dynamic routing and their gradient, for the votes of a few images at a time.

Every vote u is used T times in a sum and T - 1 times in an inner product. Left to autograd, each of
these uses makes a gradient as large as the votes. Here they are one sum: with the gradients g(s_t)
of the sums and g(b_t) of the logits after iteration t,

    g(u_ij) = sum_t c_t,ij g(s_t,j) + sum_{t<T} g(b_t,ij) v_t,j

of which only the small factors are kept. Coupling coefficients are [B, J, I, *positions] here,
children last: a softmax over an axis that is not the last runs many times faster.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from clustercaps.routing.squash import squash, squash_gradient


class Iterations(NamedTuple):
    """What the gradient needs to know of the iterations.

    Attributes:
        couplings: Coupling coefficients of every iteration [B, T, J, I, *positions].
        totals: Input of the squash in every iteration [B, T, J, D, *positions].
    """

    couplings: Tensor
    totals: Tensor


def iterate(
    votes: Tensor, shift: Tensor | None, iterations: int, leaky: bool, room: Tensor
) -> Iterations:
    """Run all iterations.

    Args:
        votes: Votes [B, I, J, D, *positions].
        shift: Added to every parent before the squash [1, J, D, ...].
        iterations: Number of iterations (T).
        leaky: Whether the softmax has an extra parent with logit 0.
        room: Memory of the shape of the votes, to be overwritten.
    """
    batch, children, parents = votes.shape[:3]
    logits = votes.new_zeros(batch, parents + leaky, children, *votes.shape[4:])
    couplings, totals = [], []
    for step in range(iterations):
        couplings.append(logits.softmax(1)[:, int(leaky) :])
        total = _weighted_sum(votes, couplings[-1], room)
        totals.append(total if shift is None else total + shift)
        if step < iterations - 1:
            # The extra parent, the first, keeps its logit.
            logits[:, int(leaky) :] += _inner_products(votes, squash(totals[-1], 2), room)
    return Iterations(torch.stack(couplings, 1), torch.stack(totals, 1))


def differentiate(
    votes: Tensor,
    known: Iterations,
    of_capsules: Tensor,
    of_coupling: Tensor,
    last_only: bool,
    room: Tensor,
    of_votes: Tensor,
) -> Tensor:
    """Write the gradient of the votes to `of_votes`; return that of the shift [B, J, D, ...].

    Args:
        votes: Votes [B, I, J, D, *positions].
        known: What `iterate` returned.
        of_capsules: Gradient of the parents [B, J, D, *positions].
        of_coupling: Gradient of the last coupling coefficients [B, J, I, *positions].
        last_only: Whether the votes get the gradient of the last iteration only.
        room: Memory of the shape of the votes, to be overwritten.
        of_votes: The same, for the result.
    """
    couplings, totals = (each.unbind(1) for each in known)
    of_shift = of_total = squash_gradient(totals[-1], of_capsules, 2)
    torch.mul(_per_vote(couplings[-1]), of_total.unsqueeze(1), out=of_votes)
    of_logits: Tensor | float = 0.0
    for step in range(len(totals) - 2, -1, -1):
        pulled = of_coupling + _inner_products(votes, of_total, room)
        of_coupling = torch.zeros_like(of_coupling[:1])
        shared = couplings[step + 1] * pulled
        of_logits = of_logits + shared - couplings[step + 1] * shared.sum(1, keepdim=True)
        of_total = squash_gradient(totals[step], _weighted_sum(votes, of_logits, room), 2)
        of_shift = of_shift + of_total
        if not last_only:
            capsules = squash(totals[step], 2)
            of_votes.addcmul_(_per_vote(of_logits), capsules.unsqueeze(1))
            of_votes.addcmul_(_per_vote(couplings[step]), of_total.unsqueeze(1))
    return of_shift


def _weighted_sum(votes: Tensor, weights: Tensor, room: Tensor) -> Tensor:
    """sum_i w_ij u_ij for every parent."""
    return torch.mul(votes, _per_vote(weights), out=room).sum(1)


def _inner_products(votes: Tensor, parents: Tensor, room: Tensor) -> Tensor:
    """<u_ij, p_j>, children last."""
    return torch.mul(votes, parents.unsqueeze(1), out=room).sum(3).transpose(1, 2)


def _per_vote(weights: Tensor) -> Tensor:
    """Numbers [B, J, I, *positions] shaped to meet votes."""
    return weights.transpose(1, 2).unsqueeze(3)
