"""The fused capsule layer on CPU, as custom operators with gradients.

Votes, statistics, routing weights and the weighted sum are computed tile by tile; votes are never
stored. The backward pass needs the input, the weights, the capsules and one value per capsule
entry, the scale 1 / sum_i r_i. Double backward uses plain PyTorch.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm
from torch.utils.flop_counter import register_flop_formula

from clustercaps.kernels import flops, plain
from clustercaps.kernels.checks import (
    Shape,
    bad_eps,
    check_no_norm,
    check_saved,
    misfit,
    other_tensor,
    out_shape,
    prepare,
    prepared,
    raise_problem,
    size_of,
)
from clustercaps.kernels.inference import dense, infer, inferred_capsules, nobody_watches
from clustercaps.kernels.library import NAMES, load
from clustercaps.utils.derivatives import plain_gradients, refuse_forward_mode, wants_graph


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
    norm: bool,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    norm_eps: float,
    bfloat16: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Capsules of a layer, and three tensors for their gradient.

    These are the capsules before the norm, or empty, the scale of every entry, and mean and inverse
    standard deviation of every normalised feature map.

    Args:
        x: Child capsules [B, C, D, H, W], float32 or float64.
        weight: The vote convolution's weight, of the same dtype.
        bias: Its bias, or None.
        stride: Its stride.
        padding: Its padding.
        clusters: Weight clusters per child channel.
        votes: Votes in a cluster.
        out_channels: Parent capsule channels.
        uniform: Whether all weights are equal.
        eps: Added to the variance of the votes.
        norm: Whether to apply layer norm over (D, H, W).
        norm_weight: Its scale [D, H, W], or None.
        norm_bias: Its shift, or None.
        norm_eps: Added to the variance of a feature map.
        bfloat16: Whether to round the factors of products to bfloat16, if the processor can.

    Raises RuntimeError if the kernel cannot compute this.
    """
    refuse_forward_mode("the fused capsule kernel")
    sizes = (stride, padding, clusters, votes, out_channels, uniform, bfloat16)
    tensors = (x, weight, bias, norm_weight, norm_bias)
    layer, shape = prepared(tensors, sizes, eps, norm_eps)
    check_no_norm(norm, norm_weight)
    out, capsules, scale, moments = _empty(x, shape, norm)
    results = (capsules, out, scale, moments) if norm else (out, None, scale, None)
    load()("forward", layer, eps, norm_eps, *map(dense, tensors), *results)
    return out, capsules, scale, moments


@fused_capsules.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    *sizes, _, _, norm, norm_weight, norm_bias, _ = rest[:11]
    raise_problem(other_tensor(x, weight, bias, norm_weight, norm_bias))
    others = (size_of(bias), size_of(norm_weight), size_of(norm_bias))
    raise_problem(misfit(x.shape, weight.shape, *others, *sizes))
    check_no_norm(norm, norm_weight)
    return _empty(x, out_shape(x.shape, weight.shape, *sizes), norm)


@torch.library.custom_op("clustercaps::fused_capsules_grad", mutates_args=(), device_types="cpu")
def fused_capsules_grad(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    capsules: Tensor,
    scale: Tensor,
    moments: Tensor,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
    uniform: bool,
    eps: float,
    norm_eps: float,
    needed: list[bool],
    bfloat16: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of `fused_capsules` for x, weight, bias and the norm; empty if not needed.

    `capsules` are those before the norm. Without a norm, `moments` is empty. Scale and shift of the
    norm need their gradients together.
    """
    sizes = (stride, padding, clusters, votes, out_channels, uniform, bfloat16)
    tensors = (x, weight, bias, norm_weight, norm_bias)
    layer, shape = prepared(tensors, sizes, eps, norm_eps)
    check_saved(x, shape, gradient, capsules, scale, moments)
    check_no_norm(moments.numel() > 0 or shape[0] == 0, norm_weight)
    wanted = _grads(tensors, needed)
    load()(
        "backward",
        layer,
        eps,
        norm_eps,
        *map(dense, tensors),
        *(capsules.contiguous(), scale.contiguous()),
        moments.contiguous() if moments.numel() else None,
        gradient.contiguous(),
        *(grad if grad.numel() else None for grad in wanted),
    )
    return wanted


@fused_capsules_grad.register_fake
def _(gradient: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    raise_problem(other_tensor(*rest[:8], gradient))
    return _grads(rest[:5], rest[16])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, *sizes, eps, norm, norm_weight, norm_bias, norm_eps, bfloat16 = inputs
    out, capsules, scale, moments = output
    kept = capsules if norm else out
    ctx.save_for_backward(x, weight, bias, norm_weight, norm_bias, kept, scale, moments)
    ctx.mark_non_differentiable(capsules, scale, moments)
    ctx.set_materialize_grads(False)
    ctx.sizes, ctx.norm, ctx.bfloat16 = (*sizes, eps, norm_eps), norm, bfloat16


def _backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 15
    needs = ctx.needs_input_grad
    # Gradients of scale and shift of the norm are computed together.
    norm = needs[11] or needs[12]
    needed = [*needs[:3], norm, norm]
    grads: Sequence[Tensor | None]
    if wants_graph(gradient):
        needed = [*needs[:3], *needs[11:13]]
        formula = partial(_plain, sizes=ctx.sizes, norm=ctx.norm)
        grads = plain_gradients(formula, ctx.saved_tensors[:5], gradient, needed)
    else:
        saved = ctx.saved_tensors
        grads = fused_capsules_grad(gradient, *saved, *ctx.sizes, needed, ctx.bfloat16)
    x, weight, bias, *of_norm = (g if n else None for g, n in zip(grads, needed, strict=True))
    return x, weight, bias, *(None,) * 8, *of_norm, None, None


def _plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    sizes: tuple[Any, ...],
    norm: bool,
) -> Tensor:
    """The same as `fused_capsules` in plain PyTorch."""
    stride, padding, clusters, votes, out_channels, uniform, eps, norm_eps = sizes
    children = x.shape[1]
    shape = plain.Shape(stride, padding, children, children * clusters, votes, uniform, eps)
    flat = plain.plain_capsules(x.flatten(1, 2), weight, bias, shape)
    capsules: Tensor = flat.unflatten(1, (out_channels, -1))
    if not norm:
        return capsules
    return layer_norm(capsules, capsules.shape[2:], norm_weight, norm_bias, norm_eps)


def _no_second_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    raise RuntimeError(
        "fused_capsules_grad cannot be differentiated; differentiate fused_capsules twice instead"
    )


fused_capsules.register_autograd(_backward, setup_context=_save)
fused_capsules_grad.register_autograd(_no_second_backward)
OPERATORS = torch.ops.clustercaps
register_flop_formula([OPERATORS.fused_capsules, OPERATORS.inferred_capsules])(flops.forward)
register_flop_formula(OPERATORS.fused_capsules_grad)(flops.backward)


def _empty(x: Tensor, shape: Shape, norm: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocate the results of `fused_capsules`."""
    capsules = x.new_empty(shape if norm else (0,))
    moments = x.new_empty((*shape[:2], 2) if norm else (0,))
    return x.new_empty(shape), capsules, x.new_empty(shape), moments


def _grads(
    tensors: tuple[Tensor | None, ...], needed: list[bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Allocate contiguous gradients; empty if not needed."""
    if len(needed) != len(tensors) or needed[3] != needed[4]:
        raise RuntimeError(
            "needed must contain 5 values, for x, weight, bias, scale and shift of the norm, the "
            f"last two equal; got {needed}"
        )
    like = tensors[0]
    assert like is not None
    x, weight, bias, norm_weight, norm_bias = (
        like.new_empty(tensor.shape if need and tensor is not None else (0,))
        for tensor, need in zip(tensors, needed, strict=True)
    )
    return x, weight, bias, norm_weight, norm_bias


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
    norm: bool = False,
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
    norm_eps: float = 0.0,
    bfloat16: bool = False,
) -> Tensor | None:
    """`fused_capsules` for every floating dtype; half precision is computed in float32.

    None if the kernel cannot compute this: the reference then does, or raises an error.
    """
    dtype = x.dtype
    if dtype not in NAMES:
        x, weight = x.float(), weight.float()
        bias = None if bias is None else bias.float()
    tensors = (x, weight, bias, norm_weight, norm_bias)
    if other_tensor(*tensors) is not None or bad_eps(eps, norm_eps) is not None:
        return None
    sizes = (stride, padding, clusters, votes, out_channels, uniform)
    # While tracing, sizes may be symbolic; the operator then checks them.
    if not torch.compiler.is_compiling() and not torch._C._len_torch_dispatch_stack():
        others = (size_of(bias), size_of(norm_weight), size_of(norm_bias))
        found = prepare(x.shape, weight.shape, *others, *sizes, bfloat16)
        if isinstance(found, str):
            return None
        if nobody_watches(tensors):
            capsules = infer(found, tensors, eps, norm, norm_eps)
            return capsules if capsules.dtype == dtype else capsules.to(dtype)
    numbers = (norm, norm_weight, norm_bias, norm_eps, bfloat16)
    arguments = (x, weight, bias, *sizes, eps, *numbers)
    graph = torch.is_grad_enabled()
    result: Tensor = fused_capsules(*arguments)[0] if graph else inferred_capsules(*arguments)
    return result if result.dtype == dtype else result.to(dtype)
