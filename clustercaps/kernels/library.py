"""The compiled kernel, called through ctypes with sizes and addresses."""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clustercaps.kernels.build import BuildError, build, cpu_name

LAYER_FIELDS = (
    *("batch", "in_channels", "in_dim", "height", "width"),
    *("clusters", "votes", "channels", "dim", "kernel", "stride", "padding", "uniform", "bfloat16"),
)
NAMES = {torch.float32: "float32", torch.float64: "float64"}
# Purpose of a call -> function of the kernel; inference saves nothing for a backward pass.
FUNCTIONS = {"forward": "forward", "backward": "backward", "inference": "forward"}
# What a function returns if it failed for this reason.
OUT_OF_MEMORY = 1
# For each active `kernel_seconds`: its clock, and the seconds by purpose.
_clocks: list[tuple[Callable[[], float], dict[str, float]]] = []


class Layer(ctypes.Structure):
    """Sizes of a layer, matching `Layer` in layer.h."""

    _fields_ = [(name, ctypes.c_int64) for name in LAYER_FIELDS]


class Library:
    """The functions of the compiled kernel."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._functions: dict[tuple[str, torch.dtype], Any] = {}
        # Whether the kernel can compute products in bfloat16, and use several threads.
        self.has_bfloat16 = bool(self._library.clustercaps_has_bfloat16())
        self.has_threads = bool(self._library.clustercaps_has_threads())
        for function, tensors in (("forward", 9), ("backward", 14)):
            for dtype in NAMES:
                entry = self.entry(function, dtype)
                entry.restype = ctypes.c_int
                entry.argtypes = [ctypes.POINTER(Layer), ctypes.c_double, ctypes.c_double]
                entry.argtypes += [ctypes.c_void_p] * tensors
                self._functions[function, dtype] = entry

    def entry(self, name: str, dtype: torch.dtype) -> Any:
        """An entry point for tensors of a dtype, as ctypes finds it."""
        return getattr(self._library, f"clustercaps_{name}_{NAMES[dtype]}")

    def __call__(
        self, purpose: str, layer: Layer, eps: float, norm_eps: float, *tensors: Tensor | None
    ) -> None:
        """Run the kernel on contiguous tensors; None for those that are not needed.

        Args:
            purpose: "forward" or "backward" of a training step, or "inference".
            layer: Sizes.
            eps: Added to the variance of the votes.
            norm_eps: Added to the variance of a feature map.
            *tensors: Inputs, then results, in the order of the entry points in cluster_cpu.cpp.
        """
        first = tensors[0]
        assert first is not None
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        if 0 in pointers:
            _check_memory(tensors)
        function = self._functions[FUNCTIONS[purpose], first.dtype]
        timed = [(clock, spent, clock()) for clock, spent in _clocks]
        failed = function(ctypes.byref(layer), eps, norm_eps, *pointers)
        for clock, spent, begin in timed:
            spent[purpose] += clock() - begin
        if failed == OUT_OF_MEMORY:
            raise MemoryError("the capsule kernel could not allocate memory for its tiles")
        if failed:
            raise RuntimeError("the capsule kernel stopped with an unexpected C++ exception")


def _check_memory(tensors: tuple[Tensor | None, ...]) -> None:
    """Only empty tensors may have no address; others had their memory freed, as by FSDP."""
    for tensor in tensors:
        if tensor is not None and tensor.numel() > 0 and tensor.data_ptr() == 0:
            raise RuntimeError(f"a tensor of shape {tuple(tensor.shape)} has no memory")


@contextmanager
def kernel_seconds(
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[dict[str, float]]:
    """Measure the seconds inside the kernel, by purpose, while active.

    Args:
        clock: What to read the time from.
    """
    spent = dict.fromkeys(FUNCTIONS, 0.0)
    _clocks.append((clock, spent))
    try:
        yield spent
    finally:
        # By identity: dictionaries with equal times are equal.
        _clocks[:] = [other for other in _clocks if other[1] is not spent]


@cache
def load() -> Library:
    """The kernel for this machine, built if necessary.

    Raises:
        BuildError: It cannot be built or loaded here.
    """
    path = build()
    try:
        return Library(path)
    # A missing library of the system, or a missing function: building again would not help.
    except (OSError, AttributeError) as error:
        raise BuildError(
            f"cannot load the kernel {path} ({error}); delete it to build it again"
        ) from error


@cache
def bfloat16_products() -> tuple[bool, str]:
    """Whether factors are rounded to bfloat16 under autocast, and why."""
    if not load().has_bfloat16:
        return False, "float32, since this processor or compiler has no AVX-512 BF16"
    # Intel's processors multiply as many numbers per cycle in float32, and to more digits.
    if "AuthenticAMD" not in cpu_name():
        return False, "float32, which is as fast on this processor"
    return True, "bfloat16, with sums in float32"


def thread_advice() -> str:
    """What to do for a kernel that uses one thread; empty if it can use several."""
    if load().has_threads:
        return ""
    return (
        "The kernel uses one thread: the compiler has no OpenMP. Install it (Debian: libomp-dev, "
        f"macOS: brew install libomp) and delete {load().path} to build the kernel again."
    )


def rounds_products(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the kernel gets float32 tensors under autocast, and rounds factors itself.

    Unlike the reference, it then rounds neither the centroids nor the input of the norm, and the
    gradients of neither.

    Args:
        x: Capsules.
        weight: Weights of the votes as they are stored.
        bias: Their biases, likewise.
    """
    if not torch.is_autocast_enabled("cpu") or torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return False
    castable = x.is_cpu and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
    stored = weight.dtype == torch.float32 and (bias is None or bias.dtype == torch.float32)
    return castable and stored and bfloat16_products()[0]
