"""Routing as plain functions, without parameters or modules."""

from clustercaps.routing.cluster import cluster_route, routing_weights, vote_statistics
from clustercaps.routing.dynamic import dynamic_route
from clustercaps.routing.squash import squash, squash_exponential, squash_unsquared

__all__ = [
    "cluster_route",
    "dynamic_route",
    "routing_weights",
    "squash",
    "squash_exponential",
    "squash_unsquared",
    "vote_statistics",
]
