"""Cluster routing: clusters of votes, weighted by how well each cluster agrees with itself.

Zhao and Cheng, "Capsule networks with non-iterative cluster routing", Neural Networks 143, 2021.

A vote cluster is the K votes that one weight cluster casts for one parent capsule. Its centroid is
what it has to say; the spread of its votes is how sure it is:

    centroid            m_i = mean_k v_ik
    spread              sigma_i = sqrt(mean_k (v_ik - m_i)^2)
    agreement           a_i = -log sigma_i
    routing weight      c_i = exp(a_i) / sum_j exp(a_j)
    parent capsule      s = sum_i c_i * m_i

All of it holds per parent capsule and per dimension.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from clustercaps.routing.base import Routed, Routing
from clustercaps.utils.errors import at_least, unknown
from clustercaps.utils.precision import wide_dtype

# Added to the variance: identical votes (K = 1, zero input) then have a finite weight and gradient.
EPS = 1e-6


def vote_statistics(
    votes: Float[Tensor, "batch clusters votes *parent"], eps: float = EPS
) -> tuple[Float[Tensor, "batch clusters *parent"], Float[Tensor, "batch clusters *parent"]]:
    """Centroid and spread of every vote cluster, in float32 or wider.

    The spread is `sqrt(variance + eps)` with the biased variance over the K votes.
    """
    votes = votes.to(wide_dtype(votes.dtype))
    centroids = votes.mean(2)
    # Moments written out: aten::var over a middle axis is many times slower on CPU.
    variance = (votes - centroids.unsqueeze(2)).square().mean(2)
    return centroids, (variance + eps).sqrt()


def routing_weights(
    spread: Float[Tensor, "batch clusters *parent"], routing: str = "cluster"
) -> Float[Tensor, "batch clusters *parent"]:
    """Weight of each cluster's centroid; positive, and 1 when summed over the clusters."""
    if routing == "cluster":
        # exp(-log sigma) = 1/sigma, so the softmax needs neither exp nor log.
        confidence = 1 / spread
        return confidence / confidence.sum(1, keepdim=True)
    if routing == "uniform":
        return torch.full_like(spread, 1 / spread.shape[1])
    raise KeyError(unknown("weighting of vote clusters", routing, ("cluster", "uniform")))


def cluster_route(
    votes: Float[Tensor, "batch clusters votes *parent"],
    *,
    routing: str = "cluster",
    eps: float = EPS,
) -> tuple[Float[Tensor, "batch *parent"], Float[Tensor, "batch clusters *parent"]]:
    """Route clusters of votes to their parent capsules.

    Args:
        votes: K votes of every cluster for every parent; the axes after K are the parent's own,
            such as channel, dimension, height and width.
        routing: "cluster" weighs each centroid by its agreement; "uniform" gives every centroid
            the weight 1 / clusters, which is the paper's ablation.
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
    """Cluster routing as a module: every `votes_per_cluster` children in a row are a cluster.

    It has no learned numbers. Layers of cluster routing call `cluster_route`, or a kernel that
    equals it; this is the form that can stand where any other routing stands.

    Args:
        children: Votes for a parent (clusters x K).
        parents: Parents (J).
        dim: Numbers in a parent capsule (D).
        votes_per_cluster: Votes in a cluster (K); all children are one cluster each by default.
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
                f"{children} children do not fall into clusters of {votes_per_cluster}; choose a "
                "votes_per_cluster that divides them"
            )
        self.votes_per_cluster, self.eps = votes_per_cluster, eps

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Mirror of `cluster_route`; the coupling has an axis of dimensions, as the weights do."""
        clustered = votes.unflatten(1, (-1, self.votes_per_cluster))
        capsules, weights = cluster_route(clustered, routing=self.weighting, eps=self.eps)
        # Every vote of a cluster counts as much as the others.
        shared = (weights / self.votes_per_cluster).unsqueeze(2).expand_as(clustered)
        return Routed(capsules, None, shared.flatten(1, 2))


class UniformRouting(ClusterRouting):
    """The paper's ablation: every cluster has the same weight, whatever its votes."""

    weighting = "uniform"
