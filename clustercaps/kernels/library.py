"""The compiled kernel, called through ctypes: it takes sizes and addresses, and knows no Python."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clustercaps.kernels.build import build

LAYER_FIELDS = (
    *("batch", "in_channels", "in_dim", "height", "width"),
    *("clusters", "votes", "channels", "dim", "kernel", "stride", "padding", "uniform"),
)
NAMES = {torch.float32: "float32", torch.float64: "float64"}


class Layer(ctypes.Structure):
    """Sizes of a layer, as `Layer` in layer.h reads them."""

    _fields_ = [(name, ctypes.c_int64) for name in LAYER_FIELDS]


class Library:
    """The compiled kernel's functions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._functions: dict[tuple[str, torch.dtype], Any] = {}
        for function, tensors in (("forward", 9), ("backward", 14)):
            for dtype, name in NAMES.items():
                entry = getattr(self._library, f"clustercaps_{function}_{name}")
                entry.restype = ctypes.c_int
                entry.argtypes = [ctypes.POINTER(Layer), ctypes.c_double, ctypes.c_double]
                entry.argtypes += [ctypes.c_void_p] * tensors
                self._functions[function, dtype] = entry

    def __call__(
        self, function: str, layer: Layer, eps: float, norm_eps: float, *tensors: Tensor | None
    ) -> None:
        """Run "forward" or "backward" on contiguous tensors; None stands for one not wanted."""
        first = tensors[0]
        assert first is not None
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        failed = self._functions[function, first.dtype](
            ctypes.byref(layer), eps, norm_eps, *pointers
        )
        if failed:
            raise MemoryError("the capsule kernel could not get memory for its tiles")


@cache
def load() -> Library:
    """The kernel of this machine, built if need be."""
    return Library(build())
