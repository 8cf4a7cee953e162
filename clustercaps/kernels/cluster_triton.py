"""PyTorch operators around the fused layer in Triton: shapes, tiles, gradients.

`triton_layer.py` has the kernels. Importing this file needs the package triton, which only CUDA and
ROCm builds of torch install; `clustercaps.kernels` imports it on first use.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton
from torch.nn.functional import fold, pad

from clustercaps.kernels import plain
from clustercaps.kernels.checks import misfit, out_shape, size_of
from clustercaps.kernels.contrasts import from_contrasts, to_contrasts
from clustercaps.kernels.triton_layer import (
    capsules_kernel,
    patches_grad_kernel,
    weight_grad_kernel,
)
from clustercaps.utils.derivatives import plain_gradients, refuse_forward_mode, wants_graph
from clustercaps.utils.precision import wide_dtype

# Rows of a cluster that are computed at a time.
GROUP = 8
# Sums of rows that a program keeps in registers, 32 for each thread of its 4 warps: more would
# spill into memory.
SUMS = 4096
# Largest size of the gradient of the patches that is stored at a time, in bytes.
PATCHES = 256 * 2**20
# Programs that keep a large GPU busy: so many parts are added up for the gradient of the weights.
PROGRAMS = 512


class Tiles(NamedTuple):
    """Sizes of what a program computes at a time."""

    # Rows of a cluster, and groups of as many rows.
    rows: int
    groups: int
    # Powers of two, at least 16.
    positions: int
    parents: int
    taps: int
    # Taps for which a program of the backward pass computes gradients.
    grad_taps: int


def choose_tiles(rows: int, taps: int) -> Tiles:
    """Tiles that fit in the registers."""
    groups = -(-rows // GROUP)
    each = -(-rows // groups)
    every = _power_above(taps)
    room = _power_below(SUMS // (each * 16))
    return Tiles(each, groups, min(64, room), 16, min(every, 32), min(every, 64))


def _power_above(number: int) -> int:
    return max(16, 1 << (number - 1).bit_length())


def _power_below(number: int) -> int:
    return max(16, 1 << (number.bit_length() - 1))


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
        launch = _Launch.of(x, weight, bias, capsules, (stride, padding), clusters, votes, uniform)
        tiles = launch.tiles
        grid = (-(-launch.positions // tiles.positions), launch.parent_tiles)
        wrap_triton(capsules_kernel)[grid](
            *(x, launch.weight, capsules, scale, launch.positions, *launch.sizes),
            *(*launch.window, *tiles[:2], uniform, eps, precision, *tiles[2:5]),
            num_warps=4,
            num_stages=1,
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
    launch = _Launch.of(x, weight, bias, capsules, window, clusters, votes, uniform)
    if of_x:
        x_grad = _x_gradient(launch, x, saved, uniform, eps, precision)
    if of_weight:
        rows = 1 if uniform else votes
        turned = _weight_gradient(launch, x, saved, rows, uniform, eps, precision)
        both = from_contrasts(turned, votes).flatten(0, 2)
        weight_grad, bias_grad = both[:, :-1].reshape(weight.shape), both[:, -1].clone()
    return x_grad, weight_grad, bias_grad


class _Launch(NamedTuple):
    """What all three kernels get: padded weights of the rows, and sizes."""

    weight: Tensor
    positions: int
    # In the order of the kernels' arguments.
    sizes: tuple[int, ...]
    # Kernel size, stride, padding.
    window: tuple[int, int, int]
    tiles: Tiles

    @property
    def parent_tiles(self) -> int:
        return self.weight.shape[3] // self.tiles.parents

    @property
    def taps(self) -> int:
        return self.sizes[3] * self.window[0] ** 2

    @staticmethod
    def of(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        capsules: Tensor,
        window: tuple[int, int],
        clusters: int,
        votes: int,
        uniform: bool,
    ) -> "_Launch":
        children, kernel = x.shape[1], weight.shape[-1]
        parents, taps = capsules.shape[1] * capsules.shape[2], x.shape[2] * kernel**2
        rows = 1 if uniform else votes
        tiles = choose_tiles(rows, taps + 1)
        if bias is None:
            bias = weight.new_zeros(len(weight))
        both = torch.cat([weight.flatten(1), bias.unsqueeze(1)], 1)
        turned = to_contrasts(both.reshape(children * clusters, votes, parents, -1), uniform)
        beyond = (0, -parents % tiles.parents, 0, -(taps + 1) % tiles.taps)
        more = (0, tiles.rows * tiles.groups - rows)
        padded = pad(turned, (*beyond, *more)).to(x.dtype).contiguous()
        area = capsules.shape[3:]
        sizes = (parents, children, clusters, *x.shape[2:], *area, *padded.shape[2:])
        positions = x.shape[0] * area[0] * area[1]
        return _Launch(padded, positions, sizes, (kernel, *window), tiles)


def _x_gradient(
    launch: _Launch,
    x: Tensor,
    saved: tuple[Tensor, Tensor, Tensor],
    uniform: bool,
    eps: float,
    precision: str,
) -> Tensor:
    """Gradients of the patches of some images at a time, added up where windows overlap."""
    tiles, taps, (kernel, stride, padding) = launch.tiles, launch.taps, launch.window
    height, width = x.shape[3:]
    area = launch.positions // x.shape[0]
    row = x.shape[1] * taps
    images = max(1, PATCHES // (row * area * saved[0].element_size()))
    found = []
    for some, *of_parents in zip(x.split(images), *(s.split(images) for s in saved), strict=True):
        patches = saved[0].new_empty((len(some), row, area))
        positions = len(some) * area
        grid = (
            -(-positions // tiles.positions),
            x.shape[1],
            -(-taps // tiles.grad_taps),
        )
        wrap_triton(patches_grad_kernel)[grid](
            *(some, launch.weight, *of_parents, patches, positions, *launch.sizes),
            *(*launch.window, *tiles[:2], uniform, eps, precision),
            *tiles[2:],
            num_warps=4,
            num_stages=1,
        )
        found.append(fold(patches, (height, width), kernel, 1, padding, stride))
    return torch.cat(found).reshape(x.shape).to(x.dtype)


def _weight_gradient(
    launch: _Launch,
    x: Tensor,
    saved: tuple[Tensor, Tensor, Tensor],
    known: int,
    uniform: bool,
    eps: float,
    precision: str,
) -> Tensor:
    """Gradients of the `known` rows' weights [cluster, row, tap, parent]; the last tap is the bias."""
    tiles, (clusters, rows, padded_taps, padded_parents) = launch.tiles, launch.weight.shape
    tap_tiles = -(-(launch.taps + 1) // tiles.grad_taps)
    blocks = clusters * tiles.groups * launch.parent_tiles
    programs = blocks * tap_tiles
    whole = -(-launch.positions // tiles.positions)
    parts = min(-(-PROGRAMS // programs), whole)
    each = -(-whole // parts) * tiles.positions
    parts = -(-launch.positions // each)
    weights = saved[0].new_empty((parts, clusters, rows, padded_taps, padded_parents))
    grid = (blocks, tap_tiles, parts)
    wrap_triton(weight_grad_kernel)[grid](
        *(x, launch.weight, *saved, weights, launch.positions, each, *launch.sizes),
        *(*launch.window, *tiles[:2], uniform, eps, precision),
        *tiles[2:],
        num_warps=8,
        num_stages=1,
    )
    return weights.sum(0)[:, :known, : launch.taps + 1, : launch.sizes[0]]


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
        grads = plain_gradients(
            partial(_plain, options=ctx.options), saved[:3], gradient, needed
        )
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


@triton_capsules.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> tuple[Tensor, Tensor]:
    capsules = x.new_empty(out_shape(x.shape, weight.shape, *options[:5]), dtype=weight.dtype)
    return capsules, torch.empty_like(capsules)


@triton_capsules_grad.register_fake
def _(gradient: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return _gradients(x, weight, *rest[-2:])


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
    precision = "tf32" if _allows_tf32(x) else "ieee"
    capsules: Tensor = triton_capsules(x, weight, bias, *sizes, uniform, eps, precision)[0]
    return capsules.to(x.dtype)


def _allows_tf32(x: Tensor) -> bool:
    """Whether convolutions in float32 may round their factors to TF32, PyTorch's own setting."""
    return x.dtype == torch.float32 and x.is_cuda and torch.backends.cudnn.allow_tf32
