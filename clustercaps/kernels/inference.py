"""The fused capsule layer without anything for its gradient: for prediction and exported programs.

`fused_capsules` also stores two tensors of the size of its capsules, which only training needs.
"""

import torch
from torch import Tensor

from clustercaps.kernels.checks import (
    Inputs,
    Prepared,
    check_no_norm,
    misfit,
    other_tensor,
    out_shape,
    prepared,
    raise_problem,
    size_of,
)
from clustercaps.kernels.library import load
from clustercaps.utils.derivatives import refuse_forward_mode

PLAIN = (Tensor, torch.nn.Parameter)


def infer(found: Prepared, tensors: Inputs, eps: float, norm: bool, norm_eps: float) -> Tensor:
    """Capsules of a layer whose sizes were checked, past the dispatcher of PyTorch."""
    capsules = tensors[0].new_empty(found.shape)
    # Normalised in place.
    results = (capsules, capsules if norm else None, None, None)
    load()("inference", found.layer, eps, norm_eps, *map(dense, tensors), *results)
    return capsules


def nobody_watches(tensors: Inputs) -> bool:
    """Whether the kernel may bypass the dispatcher, whose 40 us matter for one image.

    This is the case if no gradient, tensor subclass or view with a negative sign is involved.
    """
    graph = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in PLAIN or tensor.is_neg() or (graph and tensor.requires_grad):
            return False
    return True


def dense(tensor: Tensor | None) -> Tensor | None:
    """The same values without gaps, as the kernel reads them."""
    return None if tensor is None else tensor.contiguous()


@torch.library.custom_op("clustercaps::inferred_capsules", mutates_args=(), device_types="cpu")
def inferred_capsules(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
    uniform: bool,
    eps: float,
    norm: bool,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    norm_eps: float,
    bfloat16: bool = False,
) -> Tensor:
    """The first result of `fused_capsules`, with the same arguments; it has no gradient."""
    refuse_forward_mode("the fused capsule kernel")
    tensors = (x, weight, bias, norm_weight, norm_bias)
    sizes = (stride, padding, clusters, votes, out_channels, uniform, bfloat16)
    found = prepared(tensors, sizes, eps, norm_eps)
    check_no_norm(norm, norm_weight)
    return infer(found, tensors, eps, norm, norm_eps)


@inferred_capsules.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
    uniform: bool,
    eps: float,
    norm: bool,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    norm_eps: float,
    bfloat16: bool = False,
) -> Tensor:
    raise_problem(other_tensor(x, weight, bias, norm_weight, norm_bias))
    sizes = (stride, padding, clusters, votes, out_channels)
    others = (size_of(bias), size_of(norm_weight), size_of(norm_bias))
    raise_problem(misfit(x.shape, weight.shape, *others, *sizes))
    check_no_norm(norm, norm_weight)
    return x.new_empty(out_shape(x.shape, weight.shape, *sizes))
