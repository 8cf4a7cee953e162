"""Multiply-adds in registers by the compiled kernel, to time the arithmetic peak of the machine."""

import ctypes

import torch

from clustercaps.kernels.library import load

# Entries of one vector of the widest kind.
LANES = 16


def multiply_adds(rounds: int) -> int:
    """Compute multiply-adds of float32 on every thread; returns their number.

    Args:
        rounds: How often every thread updates its sums.
    """
    entry = load().entry("multiply_adds", torch.float32)
    entry.restype = ctypes.c_int64
    entry.argtypes = [ctypes.c_int64, ctypes.c_float, ctypes.c_float, ctypes.c_void_p]
    sums = torch.zeros(torch.get_num_threads(), LANES)
    # These keep the sums near 2: neither zero nor infinite, both of which could be slower.
    done: int = entry(rounds, 0.5, 1.0, sums.data_ptr())
    assert sums.isfinite().all()
    return done
