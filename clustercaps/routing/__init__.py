"""From votes to capsules: one file per routing, each with a pure function that follows its paper.

Exports every routing as a module (`EMRouting`) and as a function (`em_route`), their result type
(`Routed`), their base class (`Routing`), and the registry: `list_routings`, `get_routing`,
`create_routing`.
"""

from typing import Any

from clustercaps.routing.attention import AttentionRouting, attention_route
from clustercaps.routing.base import Routed, Routing
from clustercaps.routing.cluster import (
    EPS,
    ClusterRouting,
    UniformRouting,
    cluster_route,
    routing_weights,
    vote_statistics,
)
from clustercaps.routing.dynamic import DynamicRouting, dynamic_route
from clustercaps.routing.em import EMRouting, em_route
from clustercaps.routing.frem import FREMRouting, frem_route
from clustercaps.routing.frms import FRMSRouting, frms_route
from clustercaps.routing.heinsen import HeinsenRouting, heinsen_route
from clustercaps.routing.inverted_attention import (
    InvertedAttentionRouting,
    inverted_attention_route,
)
from clustercaps.routing.max_min import MaxMinRouting, max_min_route
from clustercaps.routing.self_attention import SelfAttentionRouting, self_attention_route
from clustercaps.routing.self_routing import SelfRouting, self_route
from clustercaps.routing.star import StarRouting, StarWeights, star_route
from clustercaps.routing.vb import VBRouting, vb_route
from clustercaps.utils.errors import unknown

__all__ = [
    "EPS",
    "ROUTINGS",
    "AttentionRouting",
    "ClusterRouting",
    "DynamicRouting",
    "EMRouting",
    "FREMRouting",
    "FRMSRouting",
    "HeinsenRouting",
    "InvertedAttentionRouting",
    "MaxMinRouting",
    "Routed",
    "Routing",
    "SelfAttentionRouting",
    "SelfRouting",
    "StarRouting",
    "StarWeights",
    "UniformRouting",
    "VBRouting",
    "attention_route",
    "cluster_route",
    "create_routing",
    "dynamic_route",
    "em_route",
    "frem_route",
    "frms_route",
    "get_routing",
    "heinsen_route",
    "inverted_attention_route",
    "list_routings",
    "max_min_route",
    "routing_weights",
    "self_attention_route",
    "self_route",
    "star_route",
    "vb_route",
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
"""The class of every routing by name; add a line to register your own."""


def list_routings() -> list[str]:
    """Names accepted by `create_routing` and by the `routing` argument of a capsule layer."""
    return sorted(ROUTINGS)


def get_routing(name: str) -> type[Routing]:
    """The class of the routing with this name."""
    if name not in ROUTINGS:
        raise KeyError(unknown("routing", name, ROUTINGS))
    return ROUTINGS[name]


def create_routing(name: str, children: int, parents: int, dim: int, **options: Any) -> Routing:
    """Build a routing from `children` capsules to `parents` capsules of dimension `dim`.

    Args:
        name: A name from `list_routings()`.
        children: Number of children that vote for a parent.
        parents: Number of parents.
        dim: Dimension of a parent capsule.
        **options: Arguments of the routing's class, such as `iterations`.
    """
    return get_routing(name)(children, parents, dim, **options)
