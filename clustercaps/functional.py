"""Routing as plain functions, without parameters or modules.

Exports the function of every routing (`cluster_route`, `em_route`, ...), the two halves of cluster
routing (`vote_statistics`, `routing_weights`), the squashing functions and `capsule_activation`.
"""

from clustercaps.layers.activation import capsule_activation
from clustercaps.routing import (
    attention_route,
    cluster_route,
    dynamic_route,
    em_route,
    frem_route,
    frms_route,
    heinsen_route,
    inverted_attention_route,
    max_min_route,
    routing_weights,
    self_attention_route,
    self_route,
    star_route,
    vb_route,
    vote_statistics,
)
from clustercaps.routing.squash import squash, squash_exponential, squash_half, squash_unsquared

__all__ = [
    "attention_route",
    "capsule_activation",
    "cluster_route",
    "dynamic_route",
    "em_route",
    "frem_route",
    "frms_route",
    "heinsen_route",
    "inverted_attention_route",
    "max_min_route",
    "routing_weights",
    "self_attention_route",
    "self_route",
    "squash",
    "squash_exponential",
    "squash_half",
    "squash_unsquared",
    "star_route",
    "vb_route",
    "vote_statistics",
]
