"""The fused capsule layer on CPU, as custom operators with gradients.

Votes, statistics, routing weights and the weighted sum are computed tile by tile; no vote is ever
stored. What is kept for the backward pass is the input, the weights, the capsules and one number
per capsule entry, the scale 1 / sum_i r_i.
"""

from typing import Any

import torch
from torch import Tensor

from clustercaps.kernels.library import NAMES, Layer, load


@torch.library.custom_op("clustercaps::fused_capsules", mutates_args=(), device_types="cpu")
def fused_capsules(
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
) -> tuple[Tensor, Tensor]:
    """Capsules of a layer before its norm, and the scale that their gradient needs.

    Args:
        x: Child capsules [B, C, D, H, W], float32 or float64.
        weight: The vote convolution's weight, of the same dtype.
        bias: Its bias, or None.
        stride: Its stride.
        padding: Its padding.
        clusters: Weight clusters per child channel.
        votes: Votes in a cluster.
        out_channels: Parent capsule channels.
        uniform: Whether all clusters weigh the same, instead of by agreement.
        eps: Added to the variance of the votes.
    """
    return _forward(x, weight, bias, stride, padding, clusters, votes, out_channels, uniform, eps)


def _forward(
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
) -> tuple[Tensor, Tensor]:
    layer = _layer(x, weight, stride, padding, clusters, votes, uniform)
    capsules = x.new_empty(_out_shape(x, weight, stride, padding, clusters, votes, out_channels))
    scale = torch.empty_like(capsules)
    x, weight = x.contiguous(), weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    load()("forward", layer, eps, x, weight, bias, capsules, scale)
    return capsules, scale


@fused_capsules.register_fake
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
) -> tuple[Tensor, Tensor]:
    shape = _out_shape(x, weight, stride, padding, clusters, votes, out_channels)
    return x.new_empty(shape), x.new_empty(shape)


@torch.library.custom_op("clustercaps::fused_capsules_grad", mutates_args=(), device_types="cpu")
def fused_capsules_grad(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    capsules: Tensor,
    scale: Tensor,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    uniform: bool,
    eps: float,
    need_x: bool,
    need_weight: bool,
    need_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `fused_capsules` for x, weight and bias; empty where not needed."""
    layer = _layer(x, weight, stride, padding, clusters, votes, uniform)
    x, weight = x.contiguous(), weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    wanted = _grads(x, weight, bias, need_x, need_weight, need_bias)
    out = [grad if grad.numel() else None for grad in wanted]
    inputs = (x, weight, bias, capsules.contiguous(), scale.contiguous(), gradient.contiguous())
    load()("backward", layer, eps, *inputs, *out)
    return wanted


@fused_capsules_grad.register_fake
def _(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    capsules: Tensor,
    scale: Tensor,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    uniform: bool,
    eps: float,
    need_x: bool,
    need_weight: bool,
    need_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return _grads(x, weight, bias, need_x, need_weight, need_bias)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, *sizes = inputs
    capsules, scale = output
    ctx.save_for_backward(x, weight, bias, capsules, scale)
    ctx.mark_non_differentiable(scale)
    ctx.set_materialize_grads(False)
    ctx.sizes = sizes


def _backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 10
    stride, padding, clusters, votes, _out_channels, uniform, eps = ctx.sizes
    needed = ctx.needs_input_grad[:3]
    grads = fused_capsules_grad(
        gradient, *ctx.saved_tensors, stride, padding, clusters, votes, uniform, eps, *needed
    )
    return *(g if need else None for g, need in zip(grads, needed, strict=True)), *(None,) * 7


def _no_second_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    raise RuntimeError(
        "the fused capsule kernel has no gradients of gradients; build the layer with "
        'backend="reference", or set CLUSTERCAPS_BACKEND=reference'
    )


fused_capsules.register_autograd(_backward, setup_context=_save)
fused_capsules_grad.register_autograd(_no_second_backward)


def _layer(
    x: Tensor, weight: Tensor, stride: int, padding: int, clusters: int, votes: int, uniform: bool
) -> Layer:
    parents = weight.shape[0] // (x.shape[1] * clusters * votes)
    kernel = weight.shape[-1]
    return Layer(*x.shape, clusters, votes, parents, kernel, stride, padding, int(uniform))


def _out_shape(
    x: Tensor,
    weight: Tensor,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
) -> tuple[int | torch.SymInt, ...]:
    batch, in_channels, _, *sides = x.shape
    out_dim = weight.shape[0] // (in_channels * clusters * votes * out_channels)
    kernel = weight.shape[-1]
    height, width = ((side + 2 * padding - kernel) // stride + 1 for side in sides)
    return batch, out_channels, out_dim, height, width


def _grads(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    need_x: bool,
    need_weight: bool,
    need_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Memory for the gradients, contiguous; nothing for those not needed."""
    shapes = (
        x.shape if need_x else (0,),
        weight.shape if need_weight else (0,),
        bias.shape if need_bias and bias is not None else (0,),
    )
    x_grad, weight_grad, bias_grad = (x.new_empty(shape) for shape in shapes)
    return x_grad, weight_grad, bias_grad


def like_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """The inputs in the dtype that conv2d would use, autocast included.

    None where conv2d would refuse or the kernel cannot compute: the reference then says why.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device) and x.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    same = x.dtype == weight.dtype and (bias is None or bias.dtype == x.dtype)
    return (x, weight, bias) if same and x.is_floating_point() else None


def cluster_capsules(
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
) -> Tensor:
    """`fused_capsules` for every floating dtype; half precision is computed in float32."""
    dtype = x.dtype
    if dtype not in NAMES:
        x, weight = x.float(), weight.float()
        bias = None if bias is None else bias.float()
    run = _forward if _nobody_watches(x, weight, bias) else fused_capsules
    capsules: Tensor
    capsules, _ = run(x, weight, bias, stride, padding, clusters, votes, out_channels, uniform, eps)
    return capsules if capsules.dtype == dtype else capsules.to(dtype)


def _nobody_watches(*tensors: Tensor | None) -> bool:
    """Whether the kernel may be called past the dispatcher, whose 40 us matter for one image.

    It may if no gradient, compiler, mode or tensor subclass needs to see it.
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return False
    return all(t is None or type(t) in (Tensor, torch.nn.Parameter) for t in tensors)
