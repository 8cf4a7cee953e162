"""Cluster routing compiled by `torch.compile`."""

import sys
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from clustercaps.routing import cluster_route


@cache
def compiled_route() -> Callable[..., tuple[Tensor, Tensor]]:
    """`cluster_route`, compiled for every new shape."""
    print(
        "clustercaps: compiling the routing, about 25 s, then a few seconds per new shape",
        file=sys.stderr,
        flush=True,
    )
    compiled: Callable[..., tuple[Tensor, Tensor]] = torch.compile(cluster_route)
    return compiled
