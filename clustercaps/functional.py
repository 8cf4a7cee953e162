"""Routing as plain functions, without parameters or modules."""

from clustercaps.routing.cluster import cluster_route, routing_weights, vote_statistics
from clustercaps.routing.dynamic import dynamic_route
from clustercaps.routing.em import em_route
from clustercaps.routing.squash import squash, squash_exponential, squash_unsquared
from clustercaps.routing.star import star_route
from clustercaps.routing.vb import vb_route

__all__ = [
    "cluster_route",
    "dynamic_route",
    "em_route",
    "routing_weights",
    "squash",
    "squash_exponential",
    "squash_unsquared",
    "star_route",
    "vb_route",
    "vote_statistics",
]
