"""Heinsen's routing: EM with learned benefits and costs of using or ignoring a child.

Heinsen, "An algorithm for routing capsules in all domains", 2019 (arXiv 1911.00792).

    R_ij   = 1 / J                                                  first iteration
    R_i.   = softmax over parents of log sigmoid(a_j) + log N(u_ij; mu_j, sigma_j^2)
    use    D_ij = sigmoid(a_i) R_ij,   ignore  D'_ij = sigmoid(a_i) - D_ij
    a_j    = sum_i beta_ij D_ij - sum_i beta'_ij D'_ij              a logit
    mu_j, sigma_j^2 = mean and variance of the votes, weighted by D_ij, for each entry

Activations are logits. beta is the benefit of used data, beta' the cost of ignored data; both are
learned and start at 0. The normal densities omit the constant with 2 pi, which the softmax cancels.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.routing.base import ChildActivations, Routed, Routing, Votes
from clustercaps.routing.moments import weighted_distance, weighted_squares, weighted_sum
from clustercaps.utils.errors import at_least

# Added to divisors and to variances.
EPS = 1e-5


def heinsen_route(
    votes: Votes,
    activations: ChildActivations,
    beta_use: Float[Tensor, "gains parents"],
    beta_ignore: Float[Tensor, "gains parents"],
    *,
    iterations: int = 3,
    eps: float = EPS,
) -> Routed:
    """Route votes [B, I, J, D, *positions] to parents that explain and use them.

    Args:
        votes: The vote of every child for every parent.
        activations: Activations of the children, as logits.
        beta_use: Benefit per unit of used data [I, J], or [1, J] shared by all children.
        beta_ignore: Cost per unit of ignored data, of the same shape.
        iterations: Number of iterations.
        eps: Added to sums of weights and to variances.

    Returns:
        Parents (the means), their activations as logits, and the coupling coefficients R.
    """
    at_least("iterations", iterations, 1)
    more = [1] * (votes.ndim - 4)
    gain = beta_use.view(1, *beta_use.shape, *more)
    loss = beta_ignore.view(1, *beta_ignore.shape, *more)
    there = activations.sigmoid().unsqueeze(2)
    coupling = votes.new_full((*votes.shape[:3], *votes.shape[4:]), 1 / votes.shape[2])
    for step in range(iterations):
        used = there * coupling
        scores = (gain * used - loss * (there - used)).sum(1)
        share = used / (used.sum(1, keepdim=True) + eps)
        capsules = weighted_sum(share, votes)
        if step < iterations - 1:
            variance = weighted_squares(share, votes, capsules) + eps
            # Log of the normal density over all D entries, without constants.
            closeness = -weighted_distance(votes, capsules, 0.5 / variance)
            prior = F.logsigmoid(scores) - 0.5 * variance.log().sum(2)
            coupling = (prior.unsqueeze(1) + closeness).softmax(2)
    return Routed(capsules, scores, coupling)


class HeinsenRouting(Routing):
    """Heinsen's routing as a module, with learnable benefits and costs.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        iterations: Number of iterations.
        shared: Share benefit and cost among all children of a parent.
    """

    takes_activations = True
    activations_are_logits = True

    def __init__(
        self, children: int, parents: int, dim: int, iterations: int = 3, shared: bool = False
    ) -> None:
        super().__init__(children, parents, dim)
        at_least("iterations", iterations, 1)
        self.iterations = iterations
        shape = (1 if shared else children, parents)
        self.beta_use = nn.Parameter(torch.zeros(shape))
        self.beta_ignore = nn.Parameter(torch.zeros(shape))

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `heinsen_route`."""
        assert activations is not None
        return heinsen_route(
            votes, activations, self.beta_use, self.beta_ignore, iterations=self.iterations
        )
