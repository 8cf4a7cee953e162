"""EM routing: every parent is a Gaussian, fitted to the votes of the children that it explains.

Hinton, Sabour and Frosst, "Matrix capsules with EM routing", ICLR 2018. V_ij is the vote of child i
with activation a_i; h runs over its D entries:

    R_ij = 1 / number of parents of child i
    repeat T times, t = 0 .. T-1:
        r_ij   = R_ij a_i                                   M-step
        mass_j = sum_i r_ij
        mu_j   = sum_i r_ij V_ij / mass_j
        var_j  = sum_i r_ij (V_ij - mu_j)^2 / mass_j
        cost_j = sum_h (beta_u_j + log(var_jh) / 2) mass_j
        a_j    = sigmoid(lambda_t (beta_a_j - cost_j))
        R_i.   = softmax over all parents of child i of     E-step, not after the last M-step
                 log a_j + log N(V_ij; mu_j, var_j)

lambda_t = final_lambda (1 - 0.95^(t+1)). In a convolutional layer the parents of a child are at
several positions, and all of them compete: see `clustercaps.layers.windows`. r is not normalised
again over the parents: since R sums to 1, that would cancel the activations of the children.
Gradients flow through all iterations.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.routing.base import Competition, Routed, Routing, compete_over_parents, per_parent
from clustercaps.routing.moments import VoteMoments, drop_tiny
from clustercaps.routing.squash import SMALLEST
from clustercaps.utils.errors import at_least

# Added to the variances, as in the released code: a parent with one child has zero variance.
VARIANCE = 5e-4


def em_route(
    votes: Tensor,
    activations: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    *,
    iterations: int = 3,
    final_lambda: float = 0.01,
    lambdas: Sequence[float] | None = None,
    eps: float = VARIANCE,
    smoothing: float = 0.0,
    compete: Competition | None = None,
) -> Routed:
    """Route votes [B, I, J, D, *positions] by expectation maximisation.

    Args:
        votes: The vote of every child for every parent.
        activations: Activations of the children [B, I, *positions], probabilities.
        beta_u: Cost of explaining one entry of a vote [J].
        beta_a: Cost above which a parent is inactive [J].
        iterations: Number of iterations (T).
        final_lambda: Inverse temperature at the end of the schedule.
        lambdas: Inverse temperatures of all iterations, instead of the schedule.
        eps: Added to the variances.
        smoothing: Weight of the previous mean, at first 0; 0.1 in the released code.
        compete: Maps logits to log coupling coefficients; by default, parent types compete.

    Returns:
        Means and activations of the parents, and the coupling coefficients R of the last M-step.
    """
    lambdas = check_lambdas(lambdas, final_lambda, iterations)
    compete, moments = compete or compete_over_parents, VoteMoments(votes)
    mean, fresh = votes.new_zeros(()), votes.new_full((), 1 - smoothing)
    logits = votes.new_zeros(1, *votes.shape[1:3], *votes.shape[4:])
    for step, sharpness in enumerate(lambdas):
        coupling = compete(logits).exp()
        weights = coupling * activations.unsqueeze(2)
        mass = weights.sum(1)
        shares = drop_tiny(weights / mass.clamp_min(SMALLEST).unsqueeze(1))
        mean, squares = moments.mean_and_squares(shares, fresh, smoothing * mean)
        variance = squares + eps
        # Half the log-determinant of the covariance.
        spread = variance.log().sum(2) / 2
        cost = (votes.shape[3] * per_parent(beta_u, votes) + spread) * mass
        odds = sharpness * (per_parent(beta_a, votes) - cost)
        if step < iterations - 1:
            constant = votes.shape[3] / 2 * math.log(2 * math.pi)
            parent = F.logsigmoid(odds) - spread - constant
            logits = parent.unsqueeze(1) - moments.distance(mean, 0.5 / variance)
    return Routed(mean, odds.sigmoid(), coupling.expand_as(weights))


def check_lambdas(
    lambdas: Sequence[float] | None, final_lambda: float, iterations: int
) -> Sequence[float]:
    """The inverse temperature of every iteration: those that are given, or the schedule."""
    at_least("iterations", iterations, 1)
    if lambdas is None:
        return lambda_schedule(final_lambda, iterations)
    if len(lambdas) != iterations:
        raise ValueError(f"{iterations} iterations need {iterations} lambdas, got {len(lambdas)}")
    return lambdas


def lambda_schedule(final_lambda: float, iterations: int) -> list[float]:
    """Inverse temperatures of the iterations, as in the paper."""
    return [final_lambda * (1 - 0.95 ** (step + 1)) for step in range(iterations)]


class EMRouting(Routing):
    """EM routing as a module, with two learnable parameters per parent.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parent types (J).
        dim: Dimension of a parent capsule (D).
        iterations: Number of iterations.
        final_lambda: Inverse temperature at the end of the schedule.
        eps: Added to the variances.
        smoothing: Weight of the previous mean in the new one.
        beta_u: Initial value of beta_u.
        beta_a: Initial value of beta_a.
        compete: Which parents compete for a child: the `Windows` of a convolutional layer; by
            default the parents of the same position.
    """

    takes_activations = True
    takes_competition = True

    def __init__(
        self,
        children: int,
        parents: int,
        dim: int,
        iterations: int = 3,
        final_lambda: float = 0.01,
        eps: float = VARIANCE,
        smoothing: float = 0.0,
        beta_u: float = 0.0,
        beta_a: float = 0.0,
        compete: nn.Module | None = None,
    ) -> None:
        super().__init__(children, parents, dim)
        at_least("iterations", iterations, 1)
        if final_lambda <= 0:
            raise ValueError(f"final_lambda must be positive, got {final_lambda}")
        self.iterations, self.final_lambda = iterations, final_lambda
        self.eps, self.smoothing, self.compete = eps, smoothing, compete
        self.beta_u = nn.Parameter(torch.full((parents,), beta_u))
        # beta_a has the scale of 1 / final_lambda, up to thousands: stored as a logit, it gets
        # optimizer steps of a suitable size.
        self.logit_a = nn.Parameter(torch.full((parents,), beta_a * final_lambda))

    @property
    def beta_a(self) -> Tensor:
        """Cost above which a parent is inactive [J]."""
        return self.logit_a / self.final_lambda

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `em_route`."""
        assert activations is not None
        return em_route(
            votes,
            activations,
            self.beta_u,
            self.beta_a,
            iterations=self.iterations,
            final_lambda=self.final_lambda,
            eps=self.eps,
            smoothing=self.smoothing,
            compete=self.compete,
        )
