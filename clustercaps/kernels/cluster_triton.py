"""Cluster routing of stored votes on CUDA, in Triton: every vote is read once per pass.

The votes come from the ordinary grouped convolution. In the forward pass, a program processes a
block of parent positions of one image, loops over the clusters and computes

    r_i = 1 / sqrt(var_i + eps),    R = sum_i r_i,    s = sum_i r_i * m_i / R

The backward pass loops again, with g = dL/ds, and needs only the votes, s and the scale 1 / R:

    dL/dv_ik = (g * r_i / (R * K)) * (1 - (m_i - s) * r_i^2 * (v_ik - m_i))

Centroids and weights are never stored. Importing this file needs the package triton, which only
CUDA builds of torch install; `clustercaps.kernels` imports it on first use.
"""

from functools import partial
from math import prod
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from clustercaps.routing import cluster_route
from clustercaps.utils.derivatives import plain_gradients, refuse_forward_mode, wants_graph
from clustercaps.utils.precision import wide_dtype

# Positions per program: two per thread of its four warps. The paper's 8 votes then use 16
# registers, so that many programs share a multiprocessor, and small feature maps still give many
# programs.
BLOCK = 256
# With more votes per cluster the registers spill, and compiling takes minutes.
MOST_VOTES = 32


@triton.jit
@no_type_check
def _cluster(pointers, inside, positions, eps: tl.constexpr, votes: tl.constexpr, wide):
    """A cluster's votes, centroid and confidence r at a block of positions."""
    kept = ()
    total = tl.zeros(inside.shape, wide)
    # Unrolled: the votes stay in registers for the second pass of the variance.
    for k in tl.static_range(votes):
        vote = tl.load(pointers + k * positions, mask=inside, other=0.0).to(wide)
        kept += (vote,)
        total += vote
    centroid = total / votes
    squares = tl.zeros(inside.shape, wide)
    for k in tl.static_range(votes):
        squares += (kept[k] - centroid) * (kept[k] - centroid)
    return kept, centroid, tl.rsqrt(squares / votes + eps)


@triton.jit
@no_type_check
def _place(clusters, positions, votes: tl.constexpr, block: tl.constexpr):
    """Offsets of this program's positions in votes and capsules, and which are inside."""
    blocks = tl.cdiv(positions, block)
    # 64 bits, because a batch of votes may have more than 2^31 entries.
    image = (tl.program_id(0) // blocks).to(tl.int64)
    position = (tl.program_id(0) % blocks) * block + tl.arange(0, block)
    in_capsules = image * positions + position
    in_votes = image * clusters * votes * positions + position
    return in_votes, in_capsules, position < positions


@triton.jit
@no_type_check
def _route(
    votes_ptr,
    capsules_ptr,
    scale_ptr,
    clusters,
    positions,
    eps: tl.constexpr,
    votes: tl.constexpr,
    block: tl.constexpr,
):
    wide = capsules_ptr.dtype.element_ty
    in_votes, in_capsules, inside = _place(clusters, positions, votes, block)
    pointers = votes_ptr + in_votes
    weighted = tl.zeros((block,), wide)
    total = tl.zeros((block,), wide)
    for _ in range(clusters):
        _, centroid, confidence = _cluster(pointers, inside, positions, eps, votes, wide)
        weighted += confidence * centroid
        total += confidence
        pointers += votes * positions
    tl.store(capsules_ptr + in_capsules, weighted / total, mask=inside)
    tl.store(scale_ptr + in_capsules, 1.0 / total, mask=inside)


@triton.jit
@no_type_check
def _route_grad(
    gradient_ptr,
    votes_ptr,
    capsules_ptr,
    scale_ptr,
    votes_grad_ptr,
    clusters,
    positions,
    eps: tl.constexpr,
    votes: tl.constexpr,
    block: tl.constexpr,
):
    wide = capsules_ptr.dtype.element_ty
    in_votes, in_capsules, inside = _place(clusters, positions, votes, block)
    capsule = tl.load(capsules_ptr + in_capsules, mask=inside, other=0.0)
    share = tl.load(gradient_ptr + in_capsules, mask=inside, other=0.0)
    share *= tl.load(scale_ptr + in_capsules, mask=inside, other=0.0) / votes
    pointers = votes_ptr + in_votes
    grad_pointers = votes_grad_ptr + in_votes
    for _ in range(clusters):
        kept, centroid, confidence = _cluster(pointers, inside, positions, eps, votes, wide)
        pull = (centroid - capsule) * confidence * confidence
        for k in tl.static_range(votes):
            vote_grad = share * confidence * (1.0 - pull * (kept[k] - centroid))
            tl.store(grad_pointers + k * positions, vote_grad, mask=inside)
        pointers += votes * positions
        grad_pointers += votes * positions


@triton_op("clustercaps::routed_capsules", mutates_args=())
def routed_capsules(votes: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Capsules [B, *parent] in float32 or wider, and the scale 1 / R for their gradient.

    Args:
        votes: Contiguous votes [B, clusters, K, *parent].
        eps: Added to the variance of the votes.
    """
    refuse_forward_mode("the Triton routing")
    capsules, scale = _outputs(votes)
    # An empty grid is an error in CUDA.
    if votes.numel() > 0:
        grid, sizes = _launch(votes)
        with torch.cuda.device_of(votes):
            wrap_triton(_route)[grid](votes, capsules, scale, eps=eps, **sizes)
    return capsules, scale


@triton_op("clustercaps::routed_capsules_grad", mutates_args=())
def routed_capsules_grad(
    gradient: Tensor, votes: Tensor, capsules: Tensor, scale: Tensor, eps: float
) -> Tensor:
    """Gradient of `routed_capsules` for the votes, in their dtype."""
    votes_grad = torch.empty_like(votes)
    if votes.numel() > 0:
        grid, sizes = _launch(votes)
        with torch.cuda.device_of(votes):
            wrap_triton(_route_grad)[grid](
                gradient.contiguous(), votes, capsules, scale, votes_grad, eps=eps, **sizes
            )
    return votes_grad


def _outputs(votes: Tensor) -> tuple[Tensor, Tensor]:
    wide = wide_dtype(votes.dtype)
    capsules = votes.new_empty((votes.shape[0], *votes.shape[3:]), dtype=wide)
    return capsules, torch.empty_like(capsules)


def _launch(votes: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and sizes of a launch: one program per block of positions of an image."""
    batch, clusters, per_cluster, *parent = votes.shape
    positions = prod(parent)
    sizes = {"clusters": clusters, "positions": positions, "votes": per_cluster, "block": BLOCK}
    return (batch * ((positions + BLOCK - 1) // BLOCK),), sizes


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    votes, ctx.eps = inputs
    capsules, scale = output
    ctx.save_for_backward(votes, capsules, scale)
    ctx.mark_non_differentiable(scale)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, None]:
    if gradient is None:
        return None, None
    if wants_graph(gradient):
        plain = partial(_plain, eps=ctx.eps)
        return plain_gradients(plain, ctx.saved_tensors[:1], gradient, (True,))[0], None
    return routed_capsules_grad(gradient, *ctx.saved_tensors, ctx.eps), None


def _plain(votes: Tensor, eps: float) -> Tensor:
    """The capsules of `routed_capsules` in plain PyTorch."""
    return cluster_route(votes.to(wide_dtype(votes.dtype)), eps=eps)[0]


def _no_second_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    raise RuntimeError(
        "routed_capsules_grad cannot be differentiated; differentiate routed_capsules twice instead"
    )


routed_capsules.register_fake(lambda votes, eps: _outputs(votes))
routed_capsules_grad.register_fake(lambda gradient, votes, *saved: torch.empty_like(votes))
routed_capsules.register_autograd(_backward, setup_context=_save)
routed_capsules_grad.register_autograd(_no_second_backward)


def route(votes: Tensor, *, uniform: bool, eps: float) -> Tensor:
    """Parent capsules [B, *parent] of votes [B, clusters, K, *parent], in the dtype of the votes.

    Args:
        votes: Votes of any floating dtype and layout; half precision is computed in float32.
        uniform: Whether all clusters have the same weight.
        eps: Added to the variance of the votes.

    Raises:
        RuntimeError: A cluster has more than `MOST_VOTES` votes.
    """
    if uniform:
        # The mean of the centroids is the mean of all votes: one pass, nothing to save.
        wide = wide_dtype(votes.dtype)
        return votes.mean((1, 2), dtype=wide).to(votes.dtype)
    if votes.shape[2] > MOST_VOTES:
        raise RuntimeError(
            f"backend 'triton' supports up to {MOST_VOTES} votes per cluster, got "
            f"{votes.shape[2]}; use backend='reference'"
        )
    capsules: Tensor = routed_capsules(votes.contiguous(), eps)[0]
    return capsules.to(votes.dtype)
