"""Variational Bayes routing: like EM routing, with priors that keep parents from collapsing.

Ribeiro, Leontidis and Kollias, "Capsule routing via variational Bayes", AAAI 2020, in its form with
diagonal precisions. Parents are the components of a Gaussian mixture with a Dirichlet prior
(alpha_0) on the mixing weights and a Gaussian-Wishart prior (m_0, kappa_0, Psi_0, nu_0) on means
and precisions. With a_i = sigmoid(logit of child i), and h over the D entries of a vote V_ij:

    R_ij = 1 / J
    repeat T times:
        r_ij     = R_ij a_i,   N_j = sum_i r_ij
        alpha_j  = alpha_0 + N_j,   kappa_j = kappa_0 + N_j,   nu_j = nu_0 + N_j
        m_j      = (sum_i r_ij V_ij + kappa_0 m_0) / kappa_j
        S_jh     = 1 / Psi_0 + sum_i r_ij (V_ijh - m_jh)^2 + kappa_0 (m_jh - m_0)^2
        ln pi_j  = digamma(alpha_j) - digamma(sum over types of alpha)
        ln|L|_j  = sum_{d<D} digamma((nu_j - d) / 2) + D ln 2 - sum_h ln S_jh
        R_i.     = softmax over all parents of child i of     not after the last iteration
                   ln pi_j + ln|L|_j / 2 - (D / kappa_j + nu_j sum_h (V_ijh - m_jh)^2 / S_jh) / 2

    entropy      H_j = D/2 ln(2 pi e) - ln|L|_j / 2
    activation   logit_j = beta_a_j - (exp(ln pi_j) H_j + beta_u_j)

The paper writes S with the mean of the votes, sum_i r V / N; the form around m is equal, without a
division by N, which is 0 if all children are inactive. Normalising poses and logits over the batch,
as the authors do afterwards, is up to the layer.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clustercaps.routing.base import Competition, Routed, Routing, compete_over_parents, per_parent
from clustercaps.routing.moments import VoteMoments, drop_tiny
from clustercaps.utils.errors import at_least


def vb_route(
    votes: Tensor,
    activations: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    *,
    iterations: int = 3,
    alpha: float = 1.0,
    mean: float = 0.0,
    kappa: float = 1.0,
    scale: float = 1.0,
    nu: float | None = None,
    compete: Competition | None = None,
) -> Routed:
    """Route votes [B, I, J, D, *positions] by variational Bayes.

    Args:
        votes: The vote of every child for every parent.
        activations: Logits of the children's activations [B, I, *positions].
        beta_u: Subtracted from the logit of each parent [J].
        beta_a: Added to the logit of each parent [J].
        iterations: Number of iterations (T).
        alpha: Concentration of the Dirichlet prior, in votes per parent.
        mean: Prior mean of the parents (m_0).
        kappa: Strength of the prior mean, in votes.
        scale: Scale of the prior precision (Psi_0), the same for all entries.
        nu: Degrees of freedom of the prior precision, more than D - 1; D + 1 by default.
        compete: Maps logits to log coupling coefficients; by default, parent types compete.

    Returns:
        Means of the parents, logits of their activations, and the coupling coefficients R of the
        last iteration.
    """
    at_least("iterations", iterations, 1)
    dim, parents = votes.shape[3], votes.shape[2]
    prior = Prior(alpha, mean, kappa, scale, check_freedom(nu, dim))
    compete, moments = compete or compete_over_parents, VoteMoments(votes)
    present = activations.sigmoid().unsqueeze(2)
    # As in the released code, the initial coefficients are uniform over types only.
    coupling = torch.full_like(votes[:, :, :, 0], 1 / parents)
    for step in range(iterations):
        found = fit(moments, drop_tiny(coupling * present), dim, prior)
        if step < iterations - 1:
            distance = moments.distance(found.means, found.precisions)
            # The constant -D/2 ln(2 pi) of the density is the same for all parents.
            parent = found.share + (found.log_precision - dim / found.strength) / 2
            coupling = compete(parent.unsqueeze(1) - distance / 2).exp()
    entropy = dim / 2 * math.log(2 * math.pi * math.e) - found.log_precision / 2
    logits = per_parent(beta_a, votes) - (found.share.exp() * entropy + per_parent(beta_u, votes))
    return Routed(found.means, logits, coupling)


class Prior(NamedTuple):
    """Parameters of the priors, as in `vb_route`."""

    alpha: float
    mean: float
    kappa: float
    scale: float
    nu: float


class Posterior(NamedTuple):
    """Expectations under the posteriors of all parents, each [B, J, *positions].

    Attributes:
        means: Means m_j [B, J, D, *positions].
        precisions: Expected precisions nu_j Psi_j [B, J, D, *positions].
        strength: kappa_j.
        share: E ln pi_j.
        log_precision: E ln |Lambda_j|.
    """

    means: Tensor
    precisions: Tensor
    strength: Tensor
    share: Tensor
    log_precision: Tensor


def fit(moments: VoteMoments, weights: Tensor, dim: int, prior: Prior) -> Posterior:
    """The posteriors of the parents from votes with these weights [B, I, J, *positions]."""
    mass = weights.sum(1)
    strength = prior.kappa + mass
    scale = (1 / strength).unsqueeze(2)
    prior_sum = prior.kappa * prior.mean
    means, squares = moments.mean_and_squares(weights, scale, prior_sum * scale)
    inverse = 1 / prior.scale + squares + prior.kappa * (means - prior.mean).square()
    counts, freedom = prior.alpha + mass, (prior.nu + mass).unsqueeze(2)
    share = counts.digamma() - counts.sum(1, keepdim=True).digamma()
    below = torch.arange(dim, dtype=mass.dtype, device=mass.device)
    below = below.view(1, 1, dim, *[1] * (mass.ndim - 2))
    halves = ((freedom - below) / 2).digamma().sum(2)
    log_precision = halves + dim * math.log(2) - inverse.log().sum(2)
    return Posterior(means, freedom / inverse, strength, share, log_precision)


def check_freedom(nu: float | None, dim: int) -> float:
    """Degrees of freedom of the prior: D + 1 by default."""
    if nu is None:
        return dim + 1.0
    if nu <= dim - 1:
        raise ValueError(
            f"nu must be greater than dim - 1 = {dim - 1} for a proper prior, got {nu}"
        )
    return nu


class VBRouting(Routing):
    """Variational Bayes routing as a module, with two learnable parameters per parent.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parent types (J).
        dim: Dimension of a parent capsule (D).
        iterations: Number of iterations.
        alpha: Concentration of the Dirichlet prior, in votes per parent.
        kappa: Strength of the prior mean 0, in votes.
        scale: Scale of the prior precision.
        nu: Degrees of freedom of the prior precision; dim + 1 by default.
        compete: Which parents compete for a child: the `Windows` of a convolutional layer; by
            default the parents of the same position.
    """

    takes_activations = True
    activations_are_logits = True
    takes_competition = True

    def __init__(
        self,
        children: int,
        parents: int,
        dim: int,
        iterations: int = 3,
        alpha: float = 1.0,
        kappa: float = 1.0,
        scale: float = 1.0,
        nu: float | None = None,
        compete: nn.Module | None = None,
    ) -> None:
        super().__init__(children, parents, dim)
        at_least("iterations", iterations, 1)
        for name, value in (("alpha", alpha), ("kappa", kappa), ("scale", scale)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        self.iterations, self.alpha, self.kappa, self.scale = iterations, alpha, kappa, scale
        self.nu, self.compete = check_freedom(nu, dim), compete
        self.beta_u = nn.Parameter(torch.zeros(parents))
        self.beta_a = nn.Parameter(torch.zeros(parents))

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `vb_route`."""
        assert activations is not None
        return vb_route(
            votes,
            activations,
            self.beta_u,
            self.beta_a,
            iterations=self.iterations,
            alpha=self.alpha,
            kappa=self.kappa,
            scale=self.scale,
            nu=self.nu,
            compete=self.compete,
        )
