"""Routing as plain functions, without parameters or modules."""

from clustercaps.routing.cluster import cluster_route, routing_weights, vote_statistics

__all__ = ["cluster_route", "routing_weights", "vote_statistics"]
