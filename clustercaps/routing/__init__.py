"""Votes in, capsules out: one file per routing, each a pure function that mirrors its equations."""

from typing import Any

from clustercaps.routing.attention import AttentionRouting
from clustercaps.routing.base import Routed, Routing
from clustercaps.routing.cluster import (
    EPS,
    ClusterRouting,
    UniformRouting,
    cluster_route,
    routing_weights,
    vote_statistics,
)
from clustercaps.routing.dynamic import DynamicRouting
from clustercaps.routing.em import EMRouting
from clustercaps.routing.frem import FREMRouting
from clustercaps.routing.frms import FRMSRouting
from clustercaps.routing.heinsen import HeinsenRouting
from clustercaps.routing.inverted_attention import InvertedAttentionRouting
from clustercaps.routing.max_min import MaxMinRouting
from clustercaps.routing.self_attention import SelfAttentionRouting
from clustercaps.routing.self_routing import SelfRouting
from clustercaps.routing.star import StarRouting
from clustercaps.routing.vb import VBRouting
from clustercaps.utils.errors import unknown

__all__ = [
    "EPS",
    "ROUTINGS",
    "ClusterRouting",
    "Routed",
    "Routing",
    "cluster_route",
    "create_routing",
    "get_routing",
    "list_routings",
    "routing_weights",
    "vote_statistics",
]

ROUTINGS: dict[str, type[Routing]] = {
    "attention": AttentionRouting,
    "cluster": ClusterRouting,
    "dynamic": DynamicRouting,
    "em": EMRouting,
    "frem": FREMRouting,
    "frms": FRMSRouting,
    "heinsen": HeinsenRouting,
    "inverted_attention": InvertedAttentionRouting,
    "max_min": MaxMinRouting,
    "self_attention": SelfAttentionRouting,
    "self_routing": SelfRouting,
    "star": StarRouting,
    "uniform": UniformRouting,
    "vb": VBRouting,
}


def list_routings() -> list[str]:
    """Names that `create_routing` and a capsule layer's `routing` argument take."""
    return sorted(ROUTINGS)


def get_routing(name: str) -> type[Routing]:
    """The class of the routing of that name."""
    if name not in ROUTINGS:
        raise KeyError(unknown("routing", name, ROUTINGS))
    return ROUTINGS[name]


def create_routing(name: str, children: int, parents: int, dim: int, **options: Any) -> Routing:
    """Build a routing from `children` votes for each of `parents` capsules of `dim` numbers.

    Args:
        name: A name from `list_routings()`.
        children: Children that vote for a parent.
        parents: Parents.
        dim: Numbers in a parent capsule.
        **options: Arguments of that routing's class, such as `iterations`.
    """
    return get_routing(name)(children, parents, dim, **options)
