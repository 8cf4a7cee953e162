"""What the fused kernel accepts: it gets addresses and sizes only, so all checks come before.

`other_tensor`, `bad_eps`, `misfit` and `prepare` return a message in case of a problem. Layers then
use the reference, which raises PyTorch's own error or computes the result; the operators raise the
message.
"""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clustercaps.kernels.library import NAMES, Layer
from clustercaps.utils.sizes import windows_along

# Capsules, weight and bias of the votes, scale and shift of the norm.
Inputs = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]
Shape = tuple[int | torch.SymInt, ...]

# Entries of a tensor: so few that no product of sizes in the kernel overflows 64 bits.
MOST_ENTRIES = 2**48
# Entries of a padded feature map, unless it is at most 16 times as large as the map.
PADDED_ENTRIES = 2**20
# The largest value added to a variance, finite in float32.
LARGEST_EPS = 1e30


class Prepared(NamedTuple):
    """Sizes for the kernel, and the shape of its capsules."""

    layer: Layer
    shape: tuple[int, ...]


def other_tensor(x: Tensor, *others: Tensor | None) -> str | None:
    """All tensors must be dense and like x, float32 or float64: only addresses are passed on."""
    dtype, is_cpu = x.dtype, x.is_cpu
    if dtype not in NAMES:
        return f"capsules must be float32 or float64, got {dtype}"
    for tensor in (x, *others):
        if tensor is None:
            continue
        same = tensor.dtype is dtype and tensor.is_cpu is is_cpu
        if not same or tensor.layout is not torch.strided:
            return (
                f"all tensors must be dense and like the capsules ({dtype} on {x.device}), got "
                f"{tensor.dtype} on {tensor.device} with layout {tensor.layout}"
            )
    return None


def bad_eps(*values: float) -> str | None:
    """Values added to a variance must not be negative, infinite or NaN."""
    for eps in values:
        if not 0 <= eps <= LARGEST_EPS:
            return f"eps must be between 0 and {LARGEST_EPS:g}, got {eps}"
    return None


def misfit(
    x: Shape,
    weight: Shape,
    bias: Shape | None,
    scale: Shape | None,
    shift: Shape | None,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
) -> str | None:
    """Shapes that do not belong together: capsules, weight, bias, scale and shift of the norm."""
    if len(x) != 5 or len(weight) != 4:
        return (
            "expected capsules [batch, channels, dim, height, width] and a weight "
            f"[rows, dim, kernel, kernel], got shapes {tuple(x)} and {tuple(weight)}"
        )
    if min(stride, clusters, votes, out_channels) < 1 or padding < 0:
        return (
            "stride, clusters, votes and out_channels must be at least 1 and padding at least 0, "
            f"got {stride}, {clusters}, {votes}, {out_channels} and {padding}"
        )
    if min(x[1:]) < 1 or min(weight) < 1:
        return f"shapes {tuple(x)} of capsules and {tuple(weight)} of the weight have an empty axis"
    rows, in_dim, kernel, other = weight
    if in_dim != x[2] or kernel != other:
        return (
            f"capsules of shape {tuple(x)} need a weight [rows, {x[2]}, kernel, kernel], got shape "
            f"{tuple(weight)}"
        )
    unit: Any = x[1] * clusters * votes * out_channels
    if rows % unit != 0:
        return (
            f"the weight has {rows} rows, which is no multiple of {unit} = {x[1]} channels x "
            f"{clusters} clusters x {votes} votes x {out_channels} out_channels"
        )
    if bias is not None and tuple(bias) != (rows,):
        return f"the weight has {rows} rows, but the bias has shape {tuple(bias)}"
    shape = out_shape(x, weight, stride, padding, clusters, votes, out_channels)
    if min(shape[3:]) < 1:
        return f"feature maps of {tuple(x[3:])} are too small for {kernel=}, {padding=}"
    return _other_norm(shape[2:], scale, shift)


def _other_norm(feature_map: Shape, scale: Shape | None, shift: Shape | None) -> str | None:
    if (scale is None) != (shift is None):
        return "the norm must have both a scale and a shift, or neither"
    for parameter in (scale, shift):
        if parameter is not None and tuple(parameter) != tuple(feature_map):
            return (
                f"the norm has parameters of shape {tuple(parameter)}, but the feature maps have "
                f"shape {tuple(feature_map)}"
            )
    return None


def out_shape(
    x: Shape,
    weight: Shape,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
) -> Shape:
    """Shape of the capsules [B, C', D', H', W']."""
    batch, in_channels, _, *sides = x
    rows, _, _, kernel = weight
    out_dim = rows // (in_channels * clusters * votes * out_channels)
    height, width = (windows_along(side, kernel, stride, padding) for side in sides)
    return batch, out_channels, out_dim, height, width


@lru_cache(maxsize=256)
def prepare(
    x: torch.Size,
    weight: torch.Size,
    bias: torch.Size | None,
    scale: torch.Size | None,
    shift: torch.Size | None,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
    uniform: bool,
    bfloat16: bool = False,
) -> Prepared | str:
    """Sizes for the kernel, or what is wrong with them; cached, since every call needs them."""
    sizes = (stride, padding, clusters, votes, out_channels)
    problem = misfit(x, weight, bias, scale, shift, *sizes)
    if problem is not None:
        return problem
    shape = tuple(int(size) for size in out_shape(x, weight, *sizes))
    problem = _too_large(x, weight, shape, stride, padding)
    if problem is not None:
        return problem
    numbers = (clusters, votes, out_channels, shape[2], weight[-1], stride, padding, uniform)
    return Prepared(Layer(*x, *numbers, bfloat16), shape)


def _too_large(
    x: torch.Size, weight: torch.Size, shape: tuple[int, ...], stride: int, padding: int
) -> str | None:
    for each in (x, weight, shape):
        if prod(each[1:]) * max(1, each[0]) > MOST_ENTRIES:
            return f"a tensor of shape {tuple(each)} is too large"
    height, width = x[3:]
    # As in layer.h: whole phases of `stride` columns.
    row = -(-(width + 2 * padding) // stride) * stride
    padded = row * (height + 2 * padding)
    if padded > max(PADDED_ENTRIES, 16 * height * width):
        return (
            f"{stride=} and {padding=} are too large for feature maps of {height}x{width}: the "
            f"kernel would store {padded} entries of each"
        )
    return None


def size_of(tensor: Tensor | None) -> torch.Size | None:
    """The shape of a tensor that may be missing."""
    return None if tensor is None else tensor.shape


def raise_problem(problem: str | None) -> None:
    """Raise the message of a check, if it has one."""
    if problem is not None:
        raise RuntimeError(problem)


def prepared(tensors: Inputs, sizes: tuple[Any, ...], eps: float, norm_eps: float) -> Prepared:
    """Sizes for the kernel; raises an error if it cannot compute this."""
    found: Prepared | str | None = other_tensor(*tensors) or bad_eps(eps, norm_eps)
    if found is None:
        x, weight, *others = tensors
        found = prepare(x.shape, weight.shape, *map(size_of, others), *sizes)
    if isinstance(found, str):
        raise RuntimeError(found)
    return found


def check_no_norm(norm: bool, scale: Tensor | None) -> None:
    """Raise an error if there is no norm, but a scale for it."""
    if scale is not None and not norm:
        raise RuntimeError("the norm has a scale and a shift, but norm=False or no moments")


def check_saved(x: Tensor, shape: Shape, *tensors: Tensor) -> None:
    """Check gradient, capsules, scale and moments, which a caller of the operator may mix up."""
    raise_problem(other_tensor(x, *tensors))
    *maps, moments = tensors
    wrong = next((tuple(each.shape) for each in maps if each.shape != shape), None)
    if wrong is not None:
        raise RuntimeError(
            f"gradient, capsules and scale must have shape {shape}, got one of shape {wrong}"
        )
    if moments.numel() > 0 and moments.shape != (*shape[:2], 2):
        raise RuntimeError(
            f"moments must be empty or have shape {(*shape[:2], 2)}, got {tuple(moments.shape)}"
        )
