"""Votes in, capsules out: one file per routing, each a pure function that mirrors its equations."""

from functools import partial
from typing import Protocol, runtime_checkable

from torch import Tensor

from clustercaps.errors import unknown
from clustercaps.routing.cluster import EPS, cluster_route, routing_weights, vote_statistics

__all__ = [
    "EPS",
    "ROUTINGS",
    "Routing",
    "cluster_route",
    "get_routing",
    "list_routings",
    "routing_weights",
    "vote_statistics",
]


@runtime_checkable
class Routing(Protocol):
    """What every routing is: a function without state."""

    def __call__(self, votes: Tensor, *, eps: float = EPS) -> tuple[Tensor, Tensor]:
        """Route `votes` [B, clusters, K, *parent] to capsules [B, *parent].

        The second result is the routing weights [B, clusters, *parent].
        """
        ...


ROUTINGS: dict[str, Routing] = {
    "cluster": cluster_route,
    "uniform": partial(cluster_route, routing="uniform"),
}


def list_routings() -> list[str]:
    """Names that a capsule layer's `routing` argument takes."""
    return sorted(ROUTINGS)


def get_routing(name: str) -> Routing:
    """The routing function of that name."""
    if name not in ROUTINGS:
        raise KeyError(unknown("routing", name, ROUTINGS))
    return ROUTINGS[name]
