"""The capsule layer in plain PyTorch, the reference for every kernel."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from clustercaps.routing import cluster_route
from clustercaps.utils.precision import wide_dtype

# Capsules, and weight and bias of the votes.
VoteInputs = tuple[Tensor, Tensor, Tensor | None]
# Dtypes of the kernels; half precision is computed in float32.
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


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


def normalised(capsules: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Capsules [B, C, D, H, W] after layer norm over (D, H, W).

    Under autocast they are float32: PyTorch does this on GPUs, and here on the CPU too.
    """
    if capsules.is_cpu and torch.is_autocast_enabled("cpu"):
        capsules = capsules.to(wide_dtype(capsules.dtype))
    return nn.functional.layer_norm(capsules, capsules.shape[2:], weight, bias, eps)


def like_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None) -> VoteInputs | None:
    """The inputs in the dtype that conv2d would use, autocast included.

    None if conv2d would raise an error or the kernels do not support the dtype: the reference then
    handles it.
    """
    if x.is_meta:
        return None
    device = "cpu" if x.is_cpu else x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight = _autocast(x, dtype), _autocast(weight, dtype)
        bias = None if bias is None else _autocast(bias, dtype)
    same = x.dtype == weight.dtype and (bias is None or bias.dtype == x.dtype)
    return (x, weight, bias) if same and x.dtype in DTYPES else None


def _autocast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """As autocast does, which leaves integers and float64 unchanged."""
    return tensor.to(dtype) if tensor.dtype in DTYPES and tensor.dtype != torch.float64 else tensor


def square_window(vote: nn.Conv2d, groups: int) -> tuple[int, int] | None:
    """Stride and padding of a convolution, or None if it is not the one that the kernels compute.

    They compute one group per child channel, the same stride and zero padding for height and width,
    and no dilation.
    """
    stride, padding = vote.stride, vote.padding
    if isinstance(padding, str) or stride[0] != stride[1] or padding[0] != padding[1]:
        return None
    usual = vote.dilation == (1, 1) and vote.groups == groups and vote.padding_mode == "zeros"
    return (stride[0], padding[0]) if usual else None


def refuse_meta(x: Tensor, *parameters: Tensor | None) -> None:
    """Raise an error for parameters without data, with which conv2d returns arbitrary values."""
    if not x.is_meta and any(each is not None and each.is_meta for each in parameters):
        raise RuntimeError(
            "the capsules have data, but parameters of the layer are on the device 'meta'; call "
            "layer.to_empty(device=...) and load weights"
        )
