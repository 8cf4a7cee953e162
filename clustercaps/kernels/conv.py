"""Convolutions with fewer products, by the compiled kernel: minimal filtering in float32.

A tile of outputs is computed from products of transformed weights and transformed inputs, with a
quarter of the multiplications of the usual sum for the windows in `FILTERS`; filter_matrices.h
explains the algebra. Rounding errors are a few times those of `torch.nn.functional.conv2d`, and an
infinite input makes its whole tile NaN. Double backward uses plain PyTorch.
"""

import ctypes
import os
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d
from torch.utils._python_dispatch import _get_current_dispatch_mode

from clustercaps.kernels import availability
from clustercaps.kernels.library import OUT_OF_MEMORY, load
from clustercaps.utils.derivatives import plain_gradients, wants_graph
from clustercaps.utils.tracing import plain_only

SIZES = (
    *("batch", "groups", "in_chans", "out_chans", "height", "width"),
    *("out_height", "out_width", "top", "left"),
)
# Kernel size and stride -> output positions of a tile on each side, as in `with_filter` of conv.h.
FILTERS = {(9, 2): 3, (3, 1): 4}
# With fewer channels in a group, or fewer tiles in a batch, PyTorch's convolution is as fast.
FEWEST_CHANNELS, FEWEST_TILES = 32, 4
# Vectors of the kernel have at most this many channels.
LANES = 16
POINTER, COUNT = ctypes.c_void_p, ctypes.c_int64
# Tensors of the entry points in cluster_cpu.cpp.
TENSORS = {"convolve": 4, "convolve_backward": 5}


class ConvSizes(ctypes.Structure):
    """Sizes of a convolution, matching `ConvSizes` in conv_tiles.h; channels are per group."""

    _fields_ = [(name, COUNT) for name in SIZES]


def convolve(
    maps: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, groups: int
) -> Tensor:
    """`torch.nn.functional.conv2d`, with fewer products where `can_convolve` allows it.

    Args:
        maps: Feature maps [B, C, H, W].
        weight: Square windows [C', C / groups, K, K].
        bias: One value per output channel, or None.
        stride: Of the window, in both directions.
        padding: Zeros on every side.
        groups: Groups of channels.
    """
    if not can_convolve(maps, weight, bias, stride, padding, groups):
        return conv2d(maps, weight, bias, stride, padding, groups=groups)
    result: Tensor = Convolution.apply(maps, weight, bias, stride, padding, groups)
    return result


def can_convolve(
    maps: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, groups: int
) -> bool:
    """Whether the kernel computes this convolution, and faster than PyTorch."""
    allowed = os.environ.get("CLUSTERCAPS_BACKEND", "auto") in ("auto", "cpu")
    if not allowed or _somebody_watches() or torch.is_autocast_enabled("cpu"):
        return False
    if not all(tensor is None or _is_plain(tensor) for tensor in (maps, weight, bias)):
        return False
    fits = _fits(maps.shape, weight.shape, None if bias is None else bias.shape, groups)
    if not fits or not _gains(maps.shape, weight.shape, stride, padding, groups):
        return False
    return availability.cpu_loads(warn=True)


def _somebody_watches() -> bool:
    """Whether a compiler, a transform or a mode such as a counter of operations must see conv2d."""
    watched = torch.compiler.is_compiling() or plain_only()
    return watched or _get_current_dispatch_mode() is not None


def _is_plain(tensor: Tensor) -> bool:
    """Whether this is float32 in ordinary memory of the CPU, with values as they are stored."""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.is_cpu
        and tensor.dtype is torch.float32
        and tensor.layout is torch.strided
        and not tensor.is_neg()
    )


def _fits(maps: torch.Size, weight: torch.Size, bias: torch.Size | None, groups: int) -> bool:
    """Whether the shapes belong together; if not, conv2d says what is wrong."""
    if len(maps) != 4 or len(weight) != 4 or weight[2] != weight[3]:
        return False
    return maps[1] == weight[1] * groups and bias in (None, weight[:1])


def _gains(maps: torch.Size, weight: torch.Size, stride: int, padding: int, groups: int) -> bool:
    outputs = FILTERS.get((weight[2], stride))
    channels = weight[1], weight[0] // groups
    if outputs is None or not 0 <= padding < weight[2] or weight[0] % groups:
        return False
    if min(channels) < FEWEST_CHANNELS or any(count % LANES for count in channels):
        return False
    sides = _out_sides(maps, weight, stride, padding)
    tiles = maps[0] * (-(-sides[0] // outputs)) * (-(-sides[1] // outputs))
    return min(sides) > 0 and tiles >= FEWEST_TILES


def _out_sides(maps: torch.Size, weight: torch.Size, stride: int, padding: int) -> tuple[int, int]:
    height, width = ((side + 2 * padding - weight[2]) // stride + 1 for side in maps[2:])
    return height, width


class Convolution(torch.autograd.Function):
    """`convolve` with its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: int,
        padding: int,
        groups: int,
    ) -> Tensor:
        """The convolution; saves its inputs."""
        ctx.save_for_backward(maps, weight, bias)
        ctx.window = stride, padding, groups
        sides = _out_sides(maps.shape, weight.shape, stride, padding)
        result = maps.new_empty(maps.shape[0], weight.shape[0], *sides)
        _call("convolve", ctx.window, maps.shape, weight.shape, maps, weight, bias, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of maps, weight and bias."""
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[:3]
        stride, padding, groups = ctx.window
        if wants_graph(gradient):

            def plain(maps: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
                return conv2d(maps, weight, bias, stride, padding, groups=groups)

            return *plain_gradients(plain, inputs, gradient, needed), None, None, None
        maps, weight, _ = inputs
        # Contiguous, whatever the layout of the inputs.
        results = [
            each.new_empty(each.shape) if need else None
            for each, need in zip((maps, weight), needed, strict=False)
        ]
        if any(needed[:2]):
            shapes = maps.shape, weight.shape
            _call("convolve_backward", ctx.window, *shapes, maps, weight, gradient, *results)
        of_bias = gradient.sum((0, 2, 3)) if needed[2] else None
        return *results, of_bias, None, None, None


def _call(
    name: str,
    window: tuple[int, int, int],
    maps: torch.Size,
    weight: torch.Size,
    *tensors: Tensor | None,
) -> None:
    stride, padding, groups = window
    chans = weight[1], weight[0] // groups
    sides = _out_sides(maps, weight, stride, padding)
    sizes = ConvSizes(maps[0], groups, *chans, *maps[2:], *sides, padding, padding)
    dense = [None if tensor is None else tensor.contiguous() for tensor in tensors]
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in dense]
    if 0 in pointers:
        raise RuntimeError("a tensor of the convolution has no memory: it was freed, as by FSDP")
    failed = _entry(name)(ctypes.byref(sizes), weight[2], stride, *pointers)
    if failed == OUT_OF_MEMORY:
        raise MemoryError("the convolution could not allocate memory for its tiles")
    if failed:
        raise RuntimeError("the convolution stopped with an unexpected C++ exception")


@cache
def _entry(name: str) -> Any:
    entry = load().entry(name, torch.float32)
    entry.restype = ctypes.c_int
    entry.argtypes = [ctypes.POINTER(ConvSizes), COUNT, COUNT, *[POINTER] * TENSORS[name]]
    return entry
