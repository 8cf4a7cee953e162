"""The capsule layer before its norm in plain PyTorch, the reference for every kernel."""

from typing import NamedTuple

import torch
from torch import Tensor

from clustercaps.routing import cluster_route


class Shape(NamedTuple):
    """Sizes and options of a layer that do not follow from its tensors."""

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


def like_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """The inputs in the dtype that conv2d would use, autocast included.

    None if conv2d would raise an error or the kernel does not support the dtype: the reference then
    handles it.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device) and x.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    same = x.dtype == weight.dtype and (bias is None or bias.dtype == x.dtype)
    return (x, weight, bias) if same and x.is_floating_point() else None
