"""Routing as plain functions, without parameters or modules."""

from clustercaps.routing.cluster import cluster_route, routing_weights, vote_statistics
from clustercaps.routing.dynamic import dynamic_route
from clustercaps.routing.frem import frem_route
from clustercaps.routing.frms import frms_route
from clustercaps.routing.max_min import max_min_route
from clustercaps.routing.squash import (
    squash,
    squash_exponential,
    squash_half,
    squash_unsquared,
)

__all__ = [
    "cluster_route",
    "dynamic_route",
    "frem_route",
    "frms_route",
    "max_min_route",
    "routing_weights",
    "squash",
    "squash_exponential",
    "squash_half",
    "squash_unsquared",
    "vote_statistics",
]
