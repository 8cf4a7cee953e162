"""The capsule layer before its norm in plain PyTorch: what every kernel here has to equal."""

from typing import NamedTuple

import torch
from torch import Tensor

from clustercaps.routing import cluster_route


class Shape(NamedTuple):
    """What the tensors of a layer do not say themselves."""

    stride: int
    padding: int
    children: int
    # Vote clusters of a parent, and votes in a cluster.
    clusters: int
    votes: int
    uniform: bool
    eps: float


def cast_votes(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """Votes [B, I, K, C'*D', H', W'] of children [B, C*D, H, W]."""
    votes = torch.conv2d(x, weight, bias, shape.stride, shape.padding, 1, shape.children)
    clusters: Tensor = votes.unflatten(1, (shape.clusters, shape.votes, -1))
    return clusters


def plain_capsules(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """Parents [B, C'*D', H', W'] of children [B, C*D, H, W]."""
    routing = "uniform" if shape.uniform else "cluster"
    return cluster_route(cast_votes(x, weight, bias, shape), routing=routing, eps=shape.eps)[0]
