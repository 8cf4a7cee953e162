"""Cluster routing: clusters of votes, weighted by how well the votes of each cluster agree.

Zhao and Cheng, "Capsule networks with non-iterative cluster routing", Neural Networks 143, 2021.

A vote cluster is the K votes of one weight cluster for one parent capsule. Its centroid is the
message, the spread of its votes measures its uncertainty:

    centroid            m_i = mean_k v_ik
    spread              sigma_i = sqrt(mean_k (v_ik - m_i)^2)
    agreement           a_i = -log sigma_i
    routing weight      c_i = exp(a_i) / sum_j exp(a_j)
    parent capsule      s = sum_i c_i * m_i

Everything is computed per parent capsule and dimension.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from clustercaps.routing.base import Routed, Routing
from clustercaps.utils.errors import at_least, unknown
from clustercaps.utils.precision import wide_dtype

EPS = 1e-6
"""Added to the variance of votes, so that identical votes (K = 1, zero input) have finite weights
and gradients."""


def vote_statistics(
    votes: Float[Tensor, "batch clusters votes *parent"], eps: float = EPS
) -> tuple[Float[Tensor, "batch clusters *parent"], Float[Tensor, "batch clusters *parent"]]:
    """Centroid and spread of every vote cluster, in float32 or wider.

    The spread is `sqrt(variance + eps)` with the biased variance over the K votes.
    """
    votes = votes.to(wide_dtype(votes.dtype))
    centroids = votes.mean(2)
    # Not torch.var, which is many times slower on CPU over a middle axis.
    variance = (votes - centroids.unsqueeze(2)).square().mean(2)
    return centroids, (variance + eps).sqrt()


def routing_weights(
    spread: Float[Tensor, "batch clusters *parent"], routing: str = "cluster"
) -> Float[Tensor, "batch clusters *parent"]:
    """Weight of each centroid; positive, sums to 1 over the clusters."""
    if routing == "cluster":
        # exp(-log sigma) = 1/sigma, so the softmax needs neither exp nor log.
        confidence = 1 / spread
        return confidence / confidence.sum(1, keepdim=True)
    if routing == "uniform":
        return torch.full_like(spread, 1 / spread.shape[1])
    raise KeyError(unknown("routing of vote clusters", routing, ("cluster", "uniform")))


def cluster_route(
    votes: Float[Tensor, "batch clusters votes *parent"],
    *,
    routing: str = "cluster",
    eps: float = EPS,
) -> tuple[Float[Tensor, "batch *parent"], Float[Tensor, "batch clusters *parent"]]:
    """Route clusters of votes to their parent capsules.

    Args:
        votes: K votes of every cluster for every parent; the axes after K are those of the
            parents, such as channel, dimension, height and width.
        routing: "cluster" weights each centroid by its agreement; "uniform" gives every centroid
            the weight 1 / clusters, the paper's ablation.
        eps: Added to the variance. With 0, clusters of identical votes give NaN.

    Returns:
        The parent capsules in the dtype of the votes, and the routing weights in float32 or wider.
    """
    if votes.ndim < 3 or votes.shape[1] == 0 or votes.shape[2] == 0:
        raise ValueError(
            "votes must have the axes [batch, clusters, votes, *parent] with at least one cluster "
            f"and one vote, got shape {tuple(votes.shape)}"
        )
    if not votes.is_floating_point():
        raise ValueError(f"votes must be floating point, got {votes.dtype}; call votes.float()")
    centroids, spread = vote_statistics(votes, eps)
    weights = routing_weights(spread, routing)
    capsules = (weights * centroids).sum(1)
    return capsules.to(votes.dtype), weights


class ClusterRouting(Routing):
    """Cluster routing as a module: every `votes_per_cluster` consecutive children form a cluster.

    It has no learnable parameters. Cluster routing layers call `cluster_route` or an equivalent
    kernel; this module has the same interface as all other routings.

    Args:
        children: Number of votes for a parent (clusters x K).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        votes_per_cluster: Votes in a cluster (K); by default each child is a cluster.
        eps: Added to the variance of the votes.
    """

    competes_over = "children"
    weighting = "cluster"

    def __init__(
        self,
        children: int,
        parents: int,
        dim: int,
        votes_per_cluster: int = 1,
        eps: float = EPS,
    ) -> None:
        super().__init__(children, parents, dim)
        at_least("votes_per_cluster", votes_per_cluster, 1)
        if children % votes_per_cluster:
            raise ValueError(
                f"{children} children cannot be divided into clusters of {votes_per_cluster}; "
                "choose a votes_per_cluster that divides them"
            )
        self.votes_per_cluster, self.eps = votes_per_cluster, eps

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `cluster_route`; the coupling has a dimension axis, like the routing weights."""
        clustered = votes.unflatten(1, (-1, self.votes_per_cluster))
        capsules, weights = cluster_route(clustered, routing=self.weighting, eps=self.eps)
        # All votes of a cluster have the same weight.
        shared = (weights / self.votes_per_cluster).unsqueeze(2).expand_as(clustered)
        return Routed(capsules, None, shared.flatten(1, 2))


class UniformRouting(ClusterRouting):
    """The paper's ablation: every cluster has the same weight."""

    weighting = "uniform"
