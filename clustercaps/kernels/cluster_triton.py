"""PyTorch operators around the fused layer in Triton: shapes, tiles, gradients.

`triton_layer.py` has the kernels. Importing this file needs the package triton, which only CUDA and
ROCm builds of torch install; `clustercaps.kernels` imports it on first use.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from clustercaps.kernels import plain
from clustercaps.kernels.checks import misfit, out_shape, size_of
from clustercaps.kernels.contrasts import from_contrasts
from clustercaps.kernels.triton_launch import STAGES, WARPS, Launch, weight_gradient, x_gradient
from clustercaps.kernels.triton_layer import capsules_kernel
from clustercaps.utils.derivatives import plain_gradients, refuse_forward_mode, wants_graph
from clustercaps.utils.precision import wide_dtype


@triton_op("clustercaps::triton_capsules", mutates_args=())
def triton_capsules(
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
    precision: str,
) -> tuple[Tensor, Tensor]:
    """Capsules [B, C', D', H', W'] before the norm, and the scale 1 / R for their gradient.

    Args:
        x: Child capsules [B, C, D, H, W]; its dtype is that of the factors of all products.
        weight: Weights of the votes, float32 or wider: contrasts are rounded, not votes.
        bias: Biases of the votes, or None.
        stride: Stride of the window.
        padding: Zero padding of the feature maps.
        clusters: Weight clusters per child channel.
        votes: Votes in a cluster.
        out_channels: Parent capsule channels.
        uniform: Whether all clusters have the same weight.
        eps: Added to the variance of the votes.
        precision: Of products in float32: "ieee" or "tf32".
    """
    refuse_forward_mode("the Triton layer")
    x = x.contiguous()
    shape = out_shape(x.shape, weight.shape, stride, padding, clusters, votes, out_channels)
    capsules = x.new_empty(shape, dtype=weight.dtype)
    scale = torch.empty_like(capsules)
    # An empty grid is an error in CUDA.
    if capsules.numel() > 0:
        launch = Launch.of(x, weight, bias, capsules, (stride, padding), clusters, votes, uniform)
        tiles = launch.tiles
        grid = (-(-launch.positions // tiles.positions), launch.parent_tiles)
        # Triton launches on the current device. In the backward pass, autograd sets it.
        with torch.cuda.device_of(x):
            wrap_triton(capsules_kernel)[grid](
                *(x, launch.weight, capsules, scale, launch.positions, *launch.sizes),
                *(*launch.window, *tiles[:2], uniform, eps, precision, *tiles[2:5]),
                num_warps=WARPS,
                num_stages=STAGES,
            )
    return capsules, scale


@triton_op("clustercaps::triton_capsules_grad", mutates_args=())
def triton_capsules_grad(
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
    out_channels: int,
    uniform: bool,
    eps: float,
    precision: str,
    of_x: bool,
    of_weight: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `triton_capsules` for x, and for weight and bias; empty if not needed."""
    x, gradient = x.contiguous(), gradient.contiguous()
    window = (stride, padding)
    x_grad, weight_grad, bias_grad = _gradients(x, weight, of_x, of_weight)
    if capsules.numel() == 0:
        return x_grad.zero_(), weight_grad.zero_(), bias_grad.zero_()
    saved = (gradient, capsules.contiguous(), scale.contiguous())
    launch = Launch.of(x, weight, bias, capsules, window, clusters, votes, uniform)
    if of_x:
        x_grad = x_gradient(launch, x, saved, uniform, eps, precision)
    if of_weight:
        rows = 1 if uniform else votes
        turned = weight_gradient(launch, x, saved, rows, uniform, eps, precision)
        both = from_contrasts(turned, votes).flatten(0, 2)
        weight_grad = both[:, :-1].contiguous().view(weight.shape)
        bias_grad = both[:, -1].clone()
    return x_grad, weight_grad, bias_grad


def _gradients(x: Tensor, weight: Tensor, *needed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate the gradients of x, weight and bias; empty if not needed."""
    of_x, of_weight = needed
    return (
        x.new_empty(x.shape if of_x else (0,)),
        weight.new_empty(weight.shape if of_weight else (0,)),
        weight.new_empty(weight.shape[:1] if of_weight else (0,)),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, *ctx.options = inputs
    capsules, scale = output
    ctx.save_for_backward(x, weight, bias, capsules, scale)
    ctx.mark_non_differentiable(scale)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if gradient is None:
        return (None,) * 11
    saved, needed = ctx.saved_tensors, ctx.needs_input_grad[:3]
    grads: tuple[Tensor | None, ...]
    if wants_graph(gradient):
        grads = plain_gradients(partial(_plain, options=ctx.options), saved[:3], gradient, needed)
    else:
        found = triton_capsules_grad(
            gradient, *saved, *ctx.options, needed[0], needed[1] or needed[2]
        )
        grads = tuple(g if need else None for g, need in zip(found, needed, strict=True))
    return *grads, *(None,) * 8


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, options: list[Any]) -> Tensor:
    """The capsules of `triton_capsules` in plain PyTorch."""
    stride, padding, clusters, votes, out_channels, uniform, eps, _ = options
    children = x.shape[1]
    shape = plain.Shape(stride, padding, children, children * clusters, votes, uniform, eps)
    flat = plain.plain_capsules(x.flatten(1, 2).to(weight.dtype), weight, bias, shape)
    capsules: Tensor = flat.unflatten(1, (out_channels, -1))
    return capsules


def _no_second_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    raise RuntimeError(
        "triton_capsules_grad cannot be differentiated; differentiate triton_capsules twice instead"
    )


def _fake(x: Tensor, weight: Tensor, _: Tensor | None, *options: Any) -> tuple[Tensor, Tensor]:
    capsules = x.new_empty(out_shape(x.shape, weight.shape, *options[:5]), dtype=weight.dtype)
    return capsules, torch.empty_like(capsules)


def _fake_grad(_: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return _gradients(x, weight, *rest[-2:])


triton_capsules.register_fake(_fake)
triton_capsules_grad.register_fake(_fake_grad)
triton_capsules.register_autograd(_backward, setup_context=_save)
triton_capsules_grad.register_autograd(_no_second_backward)


def cluster_capsules(
    inputs: plain.VoteInputs,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
    uniform: bool,
    eps: float,
) -> Tensor | None:
    """Capsules [B, C', D', H', W'] of a layer before its norm, in the dtype of x.

    None if the kernels cannot compute this: another backend then does, or raises an error.

    Args:
        inputs: Capsules in the dtype that conv2d would use, autocast included; weight and bias of
            the votes as they are stored.
        stride: Stride of the window.
        padding: Zero padding of the feature maps.
        clusters: Weight clusters per child channel.
        votes: Votes in a cluster.
        out_channels: Parent capsule channels.
        uniform: Whether all clusters have the same weight.
        eps: Added to the variance of the votes.
    """
    x, weight, bias = inputs
    if any(each is not None and each.device != x.device for each in inputs):
        return None
    sizes = (stride, padding, clusters, votes, out_channels)
    problem = misfit(x.shape, weight.shape, size_of(bias), None, None, *sizes)
    if problem is not None:
        return None
    wide = wide_dtype(x.dtype)
    weight, bias = weight.to(wide), None if bias is None else bias.to(wide)
    precision = "tf32" if products_of(x) == "tf32" else "ieee"
    capsules: Tensor = triton_capsules(x, weight, bias, *sizes, uniform, eps, precision)[0]
    return capsules.to(x.dtype)


def products_of(x: Tensor) -> str:
    """The dtype of the factors of all products; for float32 their precision, "ieee" or "tf32".

    TF32 follows PyTorch's own setting for convolutions.
    """
    if x.dtype != torch.float32:
        return str(x.dtype).removeprefix("torch.")
    return "tf32" if x.is_cuda and torch.backends.cudnn.allow_tf32 else "ieee"
