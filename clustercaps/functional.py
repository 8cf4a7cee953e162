"""Routing as plain functions, without parameters or modules."""

from clustercaps.layers.activation import capsule_activation
from clustercaps.routing.attention import attention_route
from clustercaps.routing.cluster import cluster_route, routing_weights, vote_statistics
from clustercaps.routing.dynamic import dynamic_route
from clustercaps.routing.em import em_route
from clustercaps.routing.frem import frem_route
from clustercaps.routing.frms import frms_route
from clustercaps.routing.heinsen import heinsen_route
from clustercaps.routing.inverted_attention import inverted_attention_route
from clustercaps.routing.max_min import max_min_route
from clustercaps.routing.self_attention import self_attention_route
from clustercaps.routing.self_routing import self_route
from clustercaps.routing.squash import squash, squash_exponential, squash_half, squash_unsquared
from clustercaps.routing.star import star_route
from clustercaps.routing.vb import vb_route

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
