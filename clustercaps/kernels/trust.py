"""Whether the Triton layer agrees with the reference on this GPU, found out on first use.

Nobody has to trust a kernel that was never run on their device: with backend "auto", the first call
of every kind of layer computes a small layer of the same kind both ways, values and gradients. If
they agree, the kernel is used; if not, or if it does not compile, plain PyTorch is used and one
warning asks for a report. Verdicts are kept in the cache folder, for this GPU and these versions.
"""

import hashlib
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clustercaps.kernels.plain import Shape, VoteInputs, plain_capsules
from clustercaps.utils.files import kernel_folder
from clustercaps.utils.json_files import read_json, write_json
from clustercaps.utils.precision import wide_dtype, without_autocast

FILE = "triton-agreement.json"
# Largest relative error of values and gradients, by the precision of the products.
ALLOWED = {"float64": 1e-10, "ieee": 1e-4, "tf32": 2e-2, "float16": 1e-2, "bfloat16": 5e-2}


class Kind(NamedTuple):
    """What a compiled kernel depends on; sizes of batch and feature maps are not part of it."""

    # A dtype, or for float32 the precision of its products.
    products: str
    children: int
    in_dim: int
    kernel: int
    stride: int
    padding: int
    clusters: int
    votes: int
    out_channels: int
    out_dim: int
    uniform: bool
    biased: bool
    eps: float


class Verdict(NamedTuple):
    """Whether a kind of layer agrees with the reference, and the largest error or the reason."""

    agrees: bool
    why: str


def agrees(inputs: VoteInputs, sizes: tuple[int, ...], uniform: bool, eps: float) -> bool:
    """Whether the Triton layer may be used for such a layer on its device.

    CLUSTERCAPS_BACKEND forces a backend, which is then not questioned.

    Args:
        inputs: Capsules [B, C, D, H, W], weight and bias of the votes, as for the kernel.
        sizes: Stride, padding, clusters, votes and out_channels.
        uniform: Whether all clusters have the same weight.
        eps: Added to the variance of the votes.
    """
    from clustercaps.kernels.cluster_triton import products_of

    if "CLUSTERCAPS_BACKEND" in os.environ:
        return True
    x, weight, bias = inputs
    stride, padding, clusters, votes, out_channels = sizes
    children, in_dim = x.shape[1:3]
    out_dim = len(weight) // (children * clusters * votes * out_channels)
    layer = (children, in_dim, weight.shape[-1], stride, padding, clusters, votes)
    kind = Kind(products_of(x), *layer, out_channels, out_dim, uniform, bias is not None, eps)
    return _agrees(kind, str(x.device))


def _decide(kind: Kind, device: str) -> bool:
    """Look the verdict up, or compare and keep it."""
    known = _verdicts(device)
    if kind not in known:
        try:
            error = compare(kind, torch.device(device))
            verdict = Verdict(
                error <= ALLOWED[kind.products], f"largest relative error {error:.1e}"
            )
        except torch.OutOfMemoryError:
            # Says nothing about the kernel: compare again at the next call.
            _warn_of_memory(_gpu(device))
            return False
        # Compilers and drivers can fail in any way; the reason is kept and shown.
        except Exception as error:
            verdict = Verdict(False, f"{type(error).__name__}: {str(error).strip()[:300]}")
        known[kind] = verdict
        _keep(device)
    if not known[kind].agrees:
        _warn(_gpu(device), known[kind].why)
    return known[kind].agrees


# torch.compile treats the verdict as a constant and does not trace the comparison.
_agrees = torch.compiler.assume_constant_result(_decide)


@torch.inference_mode(False)
@torch.enable_grad()
def compare(kind: Kind, device: torch.device) -> float:
    """Largest relative error of values and gradients on a small layer, against float64."""
    from clustercaps.kernels import cluster_triton

    draw = torch.Generator().manual_seed(0)
    # Two windows along each side, and a remainder.
    side = kind.kernel + 2 * kind.stride + 1
    rows = kind.children * kind.clusters * kind.votes * kind.out_channels * kind.out_dim
    dtype = torch.float32 if kind.products in ("ieee", "tf32") else getattr(torch, kind.products)
    wide = wide_dtype(dtype)

    def made(*shape: int, dtype: torch.dtype = wide) -> Tensor:
        return torch.randn(shape, generator=draw).to(device, dtype).requires_grad_()

    x = made(2, kind.children, kind.in_dim, side, side, dtype=dtype)
    weight, bias = made(rows, kind.in_dim, kind.kernel, kind.kernel), made(rows)
    inputs = [x, weight, bias] if kind.biased else [x, weight]
    with without_autocast(x):
        sizes = (kind.stride, kind.padding, kind.clusters, kind.votes, kind.out_channels)
        precision = "tf32" if kind.products == "tf32" else "ieee"
        options = (*sizes, kind.uniform, kind.eps, precision)
        given = (*inputs, None)[:3]
        capsules = cluster_triton.triton_capsules(*given, *options)[0]
        shape = (kind.stride, kind.padding, kind.children, kind.children * kind.clusters)
        exact = [each.detach().double().requires_grad_() for each in inputs]
        expected = plain_capsules(
            exact[0].flatten(1, 2),
            exact[1],
            exact[2] if kind.biased else None,
            Shape(*shape, kind.votes, kind.uniform, kind.eps),
        ).reshape(capsules.shape)
        pull = torch.randn(capsules.shape, generator=draw).to(capsules)
        mine = [capsules, *torch.autograd.grad(capsules, inputs, pull)]
        right = [expected, *torch.autograd.grad(expected, exact, pull.double())]
        errors = [_relative(a, b) for a, b in zip(mine, right, strict=True)]
    # NaN compares as neither larger nor smaller.
    return max(errors) if all(e == e for e in errors) else float("inf")


def _relative(mine: Tensor, right: Tensor) -> float:
    return ((mine.double() - right).abs().max() / right.abs().max().clamp_min(1e-30)).item()


def status() -> str:
    """One line for `clustercaps kernels`: verdicts on the current GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = list(_verdicts(device).values())
    good = sum(verdict.agrees for verdict in found)
    line = (
        f"Triton on {_gpu(device)}: {good} kinds of layers agree with the reference, "
        f"{len(found) - good} do not; others are compared on first use."
    )
    return "\n".join([line, *(f"  {verdict.why}" for verdict in found if not verdict.agrees)])


@cache
def _verdicts(device: str) -> dict[Kind, Verdict]:
    """Kept verdicts for a GPU; an unreadable file counts as empty, since all can be found again."""
    try:
        stored = read_json(_file())[_identity(device)]
        return {
            Kind(*(type_(value) for type_, value in zip(_TYPES, kind, strict=True))): Verdict(
                bool(good), str(why)
            )
            for kind, good, why in stored
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


_TYPES: tuple[Any, ...] = (str, *(int,) * 9, bool, bool, float)


def _keep(device: str) -> None:
    try:
        everything = read_json(_file())
    except (OSError, ValueError):
        everything = {}
    found = _verdicts(device)
    everything[_identity(device)] = [[list(kind), *verdict] for kind, verdict in found.items()]
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_json(_file(), everything)
    except OSError:
        # Compared again by the next process.
        pass


def _file() -> Path:
    return kernel_folder() / FILE


@cache
def _identity(device: str) -> str:
    """The GPU, and everything that its machine code is made from."""
    import triton

    from clustercaps import __version__

    folder = Path(__file__).parent
    names = ("triton_layer.py", "cluster_triton.py", "contrasts.py")
    source = hashlib.sha256(b"".join((folder / name).read_bytes() for name in names))
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    own = f"clustercaps {__version__} {source.hexdigest()[:12]}"
    return f"{_gpu(device)}, {versions}, {own}"


def _gpu(device: str) -> str:
    if torch.device(device).type != "cuda":
        return "the interpreter"
    major, minor = torch.cuda.get_device_capability(device)
    return f"{torch.cuda.get_device_name(device)} ({major}.{minor})"


@cache
def _warn(gpu: str, why: str) -> None:
    warnings.warn(
        f"the Triton kernel does not agree with the reference on {gpu} ({why}); plain PyTorch is "
        "used instead. Please report this with the output of `clustercaps kernels`",
        UserWarning,
        stacklevel=2,
    )


@cache
def _warn_of_memory(gpu: str) -> None:
    warnings.warn(
        f"not enough memory on {gpu} to compare the Triton kernel with the reference; plain "
        "PyTorch, which is slower, is used until a call finds enough. Free memory, or skip the "
        "comparison with the environment variable CLUSTERCAPS_BACKEND=triton",
        UserWarning,
        stacklevel=2,
    )
