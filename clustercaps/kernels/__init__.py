"""Fast backends of the capsule layer, each tested against the first, the reference.

- "reference": votes from one grouped convolution, routing in plain PyTorch. Works everywhere.
- "chunked": also plain PyTorch, with the votes of a few images at a time and a closed-form
  gradient: about half the time and a fraction of the memory. Needs no compiler.
- "compiled": the same votes, with the routing compiled by `torch.compile`. The first call for every
  shape waits for the compiler, so it is used only on request.
- "cpu": one fused C++ kernel that never stores a vote; built on first use.
- "triton": fused as well, for GPUs. Never run on a GPU by us: with "auto", the first call of every
  kind of layer is compared with the reference (`trust.py`).

"auto" selects "cpu" for tensors on the CPU and "triton" on CUDA, or "chunked" if that is not
available or does not agree with the reference. Other devices use "chunked". A layer's argument
`backend` or the variable CLUSTERCAPS_BACKEND forces a backend.
"""

import os
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clustercaps.kernels import availability, chunked, cluster_cpu, library, trust, vote_sums
from clustercaps.kernels.availability import Availability, available
from clustercaps.kernels.compiled import compiled_route
from clustercaps.kernels.library import rounds_products
from clustercaps.kernels.plain import (
    VoteInputs,
    like_conv2d,
    normalised,
    refuse_meta,
    square_window,
)
from clustercaps.routing import cluster_route
from clustercaps.routing.vote_sums import VoteSums, offer
from clustercaps.utils.errors import unknown
from clustercaps.utils.hooks import may_bypass
from clustercaps.utils.tables import text_table
from clustercaps.utils.tracing import plain_only

__all__ = [
    "BACKENDS",
    "FUSED_ROUTINGS",
    "Availability",
    "NormNumbers",
    "available",
    "choose",
    "cluster_capsules",
    "status_table",
]

BACKENDS = ("reference", "chunked", "compiled", "cpu", "triton")
"""Names of the backends; `available` describes them."""
FUSED_ROUTINGS = ("cluster", "uniform")
"""Routings with a fused kernel; the others always use the reference."""


class NormNumbers(NamedTuple):
    """Parameters of layer norm over (D, H, W): scale and shift [D, H, W] or None, and eps."""

    weight: Tensor | None
    bias: Tensor | None
    eps: float


def choose(backend: str, device: str, routing: str = "cluster") -> str:
    """The backend that a layer will use.

    Args:
        backend: "auto" or a name from `BACKENDS`. With "auto", CLUSTERCAPS_BACKEND is used if set.
        device: Type of the device of the capsules, such as "cpu".
        routing: Name of the layer's routing.

    Raises:
        RuntimeError: A forced backend is not available; the message says why.
    """
    if backend == "auto":
        backend = os.environ.get("CLUSTERCAPS_BACKEND", "auto")
    if backend not in ("auto", *BACKENDS):
        raise KeyError(unknown("backend", backend, ("auto", *BACKENDS)))
    if backend == "reference" or routing not in FUSED_ROUTINGS or plain_only():
        return "reference"
    if backend == "chunked":
        return backend
    if backend == "auto":
        if device == "cpu":
            return "cpu" if availability.cpu_loads(warn=True) else "chunked"
        usable = device == "cuda" and availability.triton_availability().usable
        return "triton" if usable else "chunked"
    if backend == "compiled":
        state = availability.compiled_availability()
    elif backend == "triton":
        state = availability.triton_availability()
        if state.usable and device != "cuda" and not availability.triton_interpreted():
            state = Availability(False, f"the capsules are on {device}")
    elif device != "cpu":
        state = Availability(False, f"the capsules are on {device}")
    else:
        usable = availability.cpu_loads(warn=False)
        state = Availability(usable, availability.load_failure() or "")
    if not state.usable:
        raise RuntimeError(
            f"backend {backend!r} was requested but is not available: {state.why}; use "
            'backend="auto", and see `clustercaps kernels`'
        )
    return backend


# torch.compile treats the choice as a constant and does not trace building and loading.
_choose_once = torch.compiler.assume_constant_result(choose)


def cluster_capsules(
    x: Tensor,
    vote: nn.Conv2d,
    *,
    clusters: int,
    votes: int,
    out_channels: int,
    routing: str,
    eps: float,
    norm: NormNumbers | None = None,
    backend: str = "auto",
) -> Tensor:
    """Capsules of a layer with the chosen backend: votes, routing, and optionally the norm.

    Args:
        x: Child capsules [B, C, D, H, W].
        vote: The vote convolution, with one group per child channel and output channels in the
            order (child, cluster, vote, parent channel, parent dim).
        clusters: Weight clusters per child channel.
        votes: Votes in a cluster.
        out_channels: Parent capsule channels.
        routing: Name of the routing.
        eps: Added to the variance of the votes.
        norm: Parameters of the layer norm over (D, H, W), if there is one.
        backend: "auto" or a name from `BACKENDS`.
    """
    path = _choose_once(backend, "cpu" if x.is_cpu else x.device.type, routing)
    direct = may_bypass(vote, nn.Conv2d)
    # Without calling the convolution.
    if direct and path in ("cpu", "chunked", "triton"):
        # Read once: a parametrisation computes it, as in spectral_norm.
        weight = vote.weight
        short = path == "cpu" and norm is not None and rounds_products(x, weight, vote.bias)
        # Contrasts of the weights are rounded, so the weights are needed as they are stored.
        stored = (x.float() if short else x, weight, vote.bias)
        inputs = stored if short else like_conv2d(*stored)
        window = square_window(vote, x.shape[1])
        if inputs is not None and window is not None:
            sizes = (*window, clusters, votes, out_channels)
            uniform = routing == "uniform"
            if path == "triton":
                stored = (inputs[0], weight, vote.bias)
                agrees = backend != "auto" or trust.agrees(stored, sizes, uniform, eps)
                path, inputs = ("triton", stored) if agrees else ("chunked", inputs)
            capsules = _computed(path, inputs, sizes, uniform, eps, norm, short)
            if capsules is not None:
                return capsules
    if direct:
        refuse_meta(x, *vote.parameters(), *(norm or ())[:2])
    return _normalised(_route(x, vote, path, clusters, votes, out_channels, routing, eps), norm)


def _computed(
    path: str,
    inputs: VoteInputs,
    sizes: tuple[int, int, int, int, int],
    uniform: bool,
    eps: float,
    norm: NormNumbers | None,
    short: bool,
) -> Tensor | None:
    """Capsules without the convolution, or None if the backend cannot compute them."""
    capsules: Tensor | None
    if path == "triton":
        from clustercaps.kernels import cluster_triton

        capsules = cluster_triton.cluster_capsules(inputs, *sizes, uniform, eps)
    elif path == "chunked":
        capsules = chunked.cluster_capsules(inputs, *sizes, uniform, eps)
    # Half precision is rounded before the norm, as without the kernel.
    elif norm is None or inputs[0].dtype not in library.NAMES:
        capsules = cluster_cpu.cluster_capsules(*inputs, *sizes, uniform, eps)
    else:
        return cluster_cpu.cluster_capsules(
            *inputs, *sizes, uniform, eps, True, *norm, bfloat16=short
        )
    return None if capsules is None else _normalised(capsules, norm)


def _normalised(capsules: Tensor, norm: NormNumbers | None) -> Tensor:
    return capsules if norm is None else normalised(capsules, *norm)


def _route(
    x: Tensor,
    vote: nn.Conv2d,
    path: str,
    clusters: int,
    votes: int,
    out_channels: int,
    routing: str,
    eps: float,
) -> Tensor:
    """Capsules before the norm, from stored votes."""
    cast = vote(x.flatten(1, 2))  # [B, I*K*C'*D', H', W']
    cast = cast.unflatten(1, (x.shape[1] * clusters, votes, out_channels, -1))
    if path == "compiled":
        # The compiler would keep a channels-last layout, which is slower.
        return compiled_route()(cast.contiguous(), routing=routing, eps=eps)[0]
    return cluster_route(cast, routing=routing, eps=eps)[0]


def status_table() -> str:
    """A table of all backends: which are available, which is used, and why."""
    used = choose("auto", "cpu")
    rows = [
        [name, "yes" if state.usable else "no", "yes" if name == used else "no", state.why]
        for name, state in available().items()
    ]
    table = text_table(["backend", "available", "used on CPU", "why"], rows)
    if used == "cpu":
        table += f"\nProducts under bfloat16 autocast: {library.bfloat16_products()[1]}."
    if availability.triton_availability().usable:
        table += f"\n{trust.status()}"
    forced = os.environ.get("CLUSTERCAPS_BACKEND")
    return f"{table}\nCLUSTERCAPS_BACKEND={forced} forces this backend." if forced else table


def _sums_of(votes: Tensor) -> VoteSums | None:
    # A backend that is forced for capsule layers must not fail where only sums are needed.
    allowed = os.environ.get("CLUSTERCAPS_BACKEND", "auto") in ("auto", "cpu")
    fits = allowed and vote_sums.can_sum(votes)
    return vote_sums if fits and availability.cpu_loads(warn=True) else None


offer(_sums_of)
