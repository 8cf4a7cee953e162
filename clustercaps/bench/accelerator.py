"""Measuring on another device than the CPU: precision, clock, memory, and what runs there."""

import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from clustercaps.bench.cases import Case, Workload
from clustercaps.bench.check import CHECKED_IMAGES

# What an allocator must report for the peak of a step.
MEMORY_FUNCTIONS = ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats")
LONGEST_REASON = 300


@contextmanager
def full_precision() -> Iterator[None]:
    """No TF32 in convolutions and matrix products: its rounding would hide mistakes."""
    convolutions = torch.backends.cudnn.allow_tf32
    products = torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.set_float32_matmul_precision(products)


def precision_note() -> str:
    """Which precision PyTorch uses for float32 as it is set now."""
    convolutions, products = (
        "allowed" if on else "not allowed"
        for on in (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
    )
    return (
        "checked without TF32, timed with PyTorch's settings: TF32 is "
        f"{convolutions} in convolutions and Triton, {products} in torch.mm"
    )


def clock(device: torch.device) -> Callable[[], float]:
    """A clock that waits until the device has finished its work."""

    def now() -> float:
        torch.accelerator.synchronize(device)
        return timeit.default_timer()

    return now


def free_bytes(device: torch.device) -> int | None:
    """Free memory of the device, if torch can tell."""
    ask = getattr(torch.get_device_module(device), "mem_get_info", None)
    return None if ask is None else int(ask(device)[0])


def allocator(device: torch.device) -> Any:
    """The module that reports peaks of the device's memory, or None."""
    for module in (torch.get_device_module(device), torch.accelerator):
        if all(hasattr(module, name) for name in MEMORY_FUNCTIONS):
            return module
    return None


def can_measure(device: torch.device) -> bool:
    """Whether torch reports peaks of the device's memory."""
    memory = allocator(device)
    if memory is None:
        return False
    try:
        memory.reset_peak_memory_stats(device)
        memory.max_memory_allocated(device)
    # Some devices have the functions, but not the numbers.
    except (RuntimeError, NotImplementedError):
        return False
    return True


def peak_extra_mb(work: Workload, device: torch.device) -> float | None:
    """Peak of a training step in megabytes, above the level before it, from the allocator.

    The allocator counts tensors and workspaces of libraries, not what it keeps for later. None if
    it counts nothing on this device.
    """
    memory = allocator(device)
    work.training_step()
    work.module.zero_grad(set_to_none=True)
    torch.accelerator.synchronize(device)
    memory.reset_peak_memory_stats(device)
    before = memory.memory_allocated(device)
    work.training_step()
    torch.accelerator.synchronize(device)
    return (memory.max_memory_allocated(device) - before) / 1e6 or None


def those_that_run(
    pairs: Sequence[tuple[Case, str]],
    workload: Callable[[Case, str], Workload],
    device: torch.device,
) -> tuple[list[tuple[Case, str]], list[str]]:
    """Candidates that complete a training step on a few images, and a note for each other one.

    A kernel that was never run on this device may fail to compile: the others are still measured.

    Args:
        pairs: The candidates.
        workload: Builds one.
        device: Where they run.
    """
    kept, notes = [], []
    for case, name in pairs:
        few = replace(case, batch=min(case.batch, CHECKED_IMAGES))
        # With "auto", users get Triton only where it agrees with the reference. The verdict is kept
        # for `clustercaps kernels`.
        names = ("auto", name) if name == "triton" else (name,)
        try:
            for each in names:
                workload(few, each).training_step()
                torch.accelerator.synchronize(device)
            kept.append((case, name))
        # Compilers and drivers can fail in any way.
        except Exception as error:
            reason = " ".join(str(error).split())[:LONGEST_REASON]
            notes.append(f"{name} on {case.name}: skipped, {type(error).__name__}: {reason}")
    if not kept:
        raise ValueError(f"nothing can be measured on {device}; {'; '.join(notes)}")
    return kept, notes
