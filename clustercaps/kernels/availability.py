"""Which backends are available on this machine, and why not."""

import os
import warnings
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch

from clustercaps.kernels import build, library

# The fused Triton kernels multiply on tensor cores, in TF32 and bfloat16 too.
OLDEST_CAPABILITY = (8, 0)


class Availability(NamedTuple):
    """Whether a backend is available, and a comment or the reason."""

    usable: bool
    why: str


def available() -> dict[str, Availability]:
    """The availability of every backend. Builds nothing."""
    return {
        "reference": Availability(True, "plain PyTorch, works everywhere"),
        "chunked": Availability(True, "plain PyTorch, the votes of a few images at a time"),
        "compiled": compiled_availability(),
        "cpu": _cpu_availability(),
        "triton": triton_availability(),
    }


@cache
def compiled_availability() -> Availability:
    """torch.compile needs a C++ compiler."""
    try:
        build.find_compiler()
    except build.BuildError as error:
        return Availability(False, str(error))
    return Availability(True, "compiles on the first call of every shape, tens of seconds")


def _cpu_availability() -> Availability:
    failure = load_failure() if _tried.get("cpu") else None
    if failure:
        return Availability(False, failure)
    try:
        path = build.library_path()
    except build.BuildError as error:
        return Availability(False, str(error))
    if os.path.exists(path):
        return Availability(True, f"built: {path}")
    seconds = build.EXPECTED_SECONDS
    return Availability(True, f"will be built on first use, about {seconds} s, into {path.parent}")


def triton_availability() -> Availability:
    """The fused layer on CUDA."""
    if find_spec("triton") is None:
        return Availability(False, "the package triton is missing; CUDA builds of torch install it")
    if triton_interpreted():
        return Availability(True, "interpreted because of TRITON_INTERPRET=1: slow, for tests")
    if not torch.cuda.is_available():
        return Availability(False, "torch finds no CUDA device")
    if torch.version.hip is None and torch.cuda.get_device_capability() < OLDEST_CAPABILITY:
        return Availability(False, "the GPU is too old: this needs compute capability 8.0")
    return Availability(True, "compiles on the first call of every layer, some seconds")


def triton_interpreted() -> bool:
    """Whether Triton interprets its kernels on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


# Whether loading the kernel was tried in this process.
_tried: dict[str, bool] = {}


@cache
def load_failure() -> str | None:
    """Load the CPU kernel; why that failed, or None."""
    _tried["cpu"] = True
    try:
        library.load()
    except build.BuildError as error:
        return str(error)
    return None


def cpu_loads(warn: bool) -> bool:
    """Whether the CPU kernel can be used; warns once if it cannot."""
    failure = load_failure()
    if failure and warn:
        warn_once(failure)
    return failure is None


@cache
def warn_once(failure: str) -> None:
    """Warn that plain PyTorch is used."""
    warnings.warn(
        f"using plain PyTorch instead of the fused CPU kernel: {failure}", UserWarning, stacklevel=2
    )
