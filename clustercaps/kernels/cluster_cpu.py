"""The fused capsule layer on CPU, as custom operators with gradients.

Votes, statistics, routing weights and the weighted sum are computed tile by tile; votes are never
stored. The backward pass needs the input, the weights, the capsules and one value per capsule
entry, the scale 1 / sum_i r_i. Double backward uses plain PyTorch.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from clustercaps.kernels import plain
from clustercaps.kernels.library import NAMES, Layer, load
from clustercaps.utils.derivatives import plain_gradients, refuse_forward_mode, wants_graph
from clustercaps.utils.sizes import windows_along

Shape = tuple[int | torch.SymInt, ...]


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

    These are the capsules before the norm (empty if there is none), the scale of every entry, and
    mean and inverse standard deviation of every normalised feature map.

    Args:
        x: Child capsules [B, C, D, H, W], float32 or float64.
        weight: The vote convolution's weight, of the same dtype.
        bias: Its bias, or None.
        stride: Its stride.
        padding: Its padding.
        clusters: Weight clusters per child channel.
        votes: Votes in a cluster.
        out_channels: Parent capsule channels.
        uniform: Whether all clusters have the same weight.
        eps: Added to the variance of the votes.
        norm: Whether to apply layer norm over (D, H, W).
        norm_weight: Its scale [D, H, W], or None.
        norm_bias: Its shift; None exactly if the scale is None.
        norm_eps: Added to the variance of a feature map.
        bfloat16: Whether to round the factors of all products to bfloat16, if the kernel can
            (`library.has_bfloat16`); sums, routing and norm keep their precision.
    """
    refuse_forward_mode("the fused capsule kernel")
    sizes = (stride, padding, clusters, votes, out_channels, uniform, bfloat16)
    layer, shape = _layer(x.shape, weight.shape, *sizes)
    _check_norm(shape, norm_weight, norm_bias)
    out, capsules, scale, moments = _empty(x, shape, norm)
    inputs = map(_dense, (x, weight, bias, norm_weight, norm_bias))
    results = (capsules, out, scale, moments) if norm else (out, None, scale, None)
    load()("forward", layer, eps, norm_eps, *inputs, *results)
    return out, capsules, scale, moments


@fused_capsules.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    # Defaults are left out, so from the front: five sizes, uniform, eps, norm.
    return _empty(x, _out_shape(x.shape, weight.shape, *rest[:5]), rest[7])


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

    `capsules` are those before the norm. Without a norm, `moments` is empty.
    """
    sizes = (stride, padding, clusters, votes, out_channels, uniform, bfloat16)
    layer, _ = _layer(x.shape, weight.shape, *sizes)
    tensors = (x, weight, bias, norm_weight, norm_bias)
    wanted = _grads(tensors, needed)
    load()(
        "backward",
        layer,
        eps,
        norm_eps,
        *map(_dense, tensors),
        *(capsules.contiguous(), scale.contiguous(), moments if moments.numel() else None),
        gradient.contiguous(),
        *(grad if grad.numel() else None for grad in wanted),
    )
    return wanted


@fused_capsules_grad.register_fake
def _(gradient: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    tensors, needed = rest[:5], rest[16]
    return _grads(tensors, needed)


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
        grads = fused_capsules_grad(
            gradient, *ctx.saved_tensors, *ctx.sizes, needed, ctx.bfloat16
        )
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


def _dense(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


@lru_cache(maxsize=256)
def _layer(
    x: torch.Size,
    weight: torch.Size,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
    uniform: bool,
    bfloat16: bool = False,
) -> tuple[Layer, Shape]:
    """Sizes for the kernel and the shape of its capsules; cached, since every call needs them."""
    shape = _out_shape(x, weight, stride, padding, clusters, votes, out_channels)
    sizes = (clusters, votes, out_channels, shape[2], weight[-1], stride, padding, uniform)
    return Layer(*x, *sizes, bfloat16), shape


def _out_shape(
    x: torch.Size,
    weight: torch.Size,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
) -> Shape:
    batch, in_channels, _, *sides = x
    rows, _, _, kernel = weight
    out_dim = rows // (in_channels * clusters * votes * out_channels)
    height, width = (windows_along(side, kernel, stride, padding) for side in sides)
    return batch, out_channels, out_dim, height, width


def _check_norm(shape: Shape, weight: Tensor | None, bias: Tensor | None) -> None:
    for tensor in (weight, bias):
        if tensor is not None and tensor.shape != shape[2:]:
            raise RuntimeError(
                f"the norm has parameters of shape {tuple(tensor.shape)}, but the feature maps "
                f"have shape {tuple(shape[2:])}"
            )


def _empty(x: Tensor, shape: Shape, norm: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocate the results of `fused_capsules`."""
    capsules = x.new_empty(shape if norm else (0,))
    moments = x.new_empty((*shape[:2], 2) if norm else (0,))
    return x.new_empty(shape), capsules, x.new_empty(shape), moments


def _grads(
    tensors: tuple[Tensor | None, ...], needed: list[bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Allocate contiguous gradients; empty if not needed."""
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
) -> Tensor:
    """`fused_capsules` for every floating dtype; half precision is computed in float32."""
    dtype = x.dtype
    if dtype not in NAMES:
        x, weight = x.float(), weight.float()
        bias = None if bias is None else bias.float()
    capsules: Tensor
    sizes = (stride, padding, clusters, votes, out_channels, uniform)
    if _nobody_watches(x, weight, bias, norm_weight, norm_bias):
        layer, shape = _layer(x.shape, weight.shape, *sizes, bfloat16)
        _check_norm(shape, norm_weight, norm_bias)
        capsules = x.new_empty(shape)
        inputs = map(_dense, (x, weight, bias, norm_weight, norm_bias))
        # Normalised in place; no gradient is needed.
        results = (capsules, capsules if norm else None, None, None)
        load()("inference", layer, eps, norm_eps, *inputs, *results)
    else:
        numbers = (norm, norm_weight, norm_bias, norm_eps, bfloat16)
        capsules = fused_capsules(x, weight, bias, *sizes, eps, *numbers)[0]
    return capsules if capsules.dtype == dtype else capsules.to(dtype)


def _nobody_watches(*tensors: Tensor | None) -> bool:
    """Whether the kernel may bypass the dispatcher, whose 40 us matter for one image.

    This is the case if no gradient, compiler, mode or tensor subclass is involved.
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return False
    return all(t is None or type(t) in (Tensor, torch.nn.Parameter) for t in tensors)
