"""The capsule layer in plain PyTorch, with the votes of a few images at a time.

For machines without a compiler: the votes fit in the cache, and none are saved for the backward
pass, which recomputes them and uses a closed-form gradient:

    dv_ik = g r_i / (R K) (1 - (m_i - s) r_i^2 (v_ik - m_i)),   r = 1/spread, R = sum_i r_i
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from clustercaps.kernels import plain
from clustercaps.kernels.checks import misfit, size_of
from clustercaps.kernels.plain import Shape, VoteInputs, plain_capsules
from clustercaps.utils.derivatives import plain_gradients, wants_graph
from clustercaps.utils.precision import wide_dtype
from clustercaps.utils.sizes import windows_along

# Size of the votes that are computed at a time, in bytes: about the size of the cache on a CPU, and
# enough work for each call on other devices.
CHUNK = 8 * 2**20
DEVICE_CHUNK = 256 * 2**20


class ChunkedCapsules(torch.autograd.Function):
    """Parents [B, C'*D', H', W'] of children [B, C*D, H, W], before the norm."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
        """Compute the parents; saves them and R for the backward pass."""
        parents, totals = [], []
        for images in x.split(chunk_size(x, weight, shape)):
            centroids, confidence, _ = statistics(cast_votes(images, weight, bias, shape), shape)
            totals.append(confidence.sum(1))
            parents.append((confidence * centroids).sum(1) / totals[-1])
        parent, total = torch.cat(parents), torch.cat(totals)
        ctx.save_for_backward(x, weight, bias, parent, total)
        ctx.shape = shape
        return parent.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of children, weight and bias."""
        x, weight, bias, parent, total = ctx.saved_tensors
        shape, needed = ctx.shape, ctx.needs_input_grad[:3]
        if wants_graph(gradient):
            plain = partial(plain_capsules, shape=shape)
            return *plain_gradients(plain, (x, weight, bias), gradient, needed), None
        pull = gradient / (total * shape.votes)
        return *_closed_form((x, weight, bias), parent, pull, shape, needed), None


def _closed_form(
    inputs: VoteInputs,
    parent: Tensor,
    pull: Tensor,
    shape: Shape,
    needed: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of children, weight and bias, as needed; `pull` is g / (R K)."""
    x, weight, bias = inputs
    size = chunk_size(x, weight, shape)
    of_x: list[Tensor] = []
    of_weight = torch.zeros_like(weight, dtype=parent.dtype)
    of_bias = None if bias is None else torch.zeros_like(bias, dtype=parent.dtype)
    for images, s, g in zip(x.split(size), parent.split(size), pull.split(size), strict=True):
        centroids, confidence, deviations = statistics(
            cast_votes(images, weight, bias, shape), shape
        )
        share = g.unsqueeze(1) * confidence
        of_votes = share.unsqueeze(2)
        if not shape.uniform:
            lean = (s.unsqueeze(1) - centroids) * confidence.square() * share
            of_votes = deviations.mul_(lean.unsqueeze(2)).add_(of_votes)
        of_votes = of_votes.expand_as(deviations).flatten(1, 3).to(x.dtype)
        # Sizes of the bias, stride, padding and dilation; nothing is transposed.
        sizes = ([len(weight)], [shape.stride] * 2, [shape.padding] * 2, [1, 1], False, [0, 0])
        found = torch.ops.aten.convolution_backward(
            of_votes, images, weight, *sizes, shape.children, needed
        )
        if needed[0]:
            of_x.append(found[0])
        if needed[1]:
            of_weight += found[1]
        if of_bias is not None and needed[2]:
            of_bias += found[2]
    return (
        torch.cat(of_x) if needed[0] else None,
        of_weight.to(weight.dtype) if needed[1] else None,
        of_bias.to(weight.dtype) if of_bias is not None and needed[2] else None,
    )


def cluster_capsules(
    inputs: VoteInputs,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
    uniform: bool,
    eps: float,
) -> Tensor | None:
    """Capsules [B, C', D', H', W'] of a layer before its norm; `inputs` in conv2d's dtype.

    None if the inputs do not fit or chunks do not help: the reference then handles it.
    """
    x, weight, bias = inputs
    if x.device != weight.device or (bias is not None and x.device != bias.device):
        return None
    sizes = (stride, padding, clusters, votes, out_channels)
    if misfit(x.shape, weight.shape, size_of(bias), None, None, *sizes) is not None:
        return None
    children = x.shape[1]
    shape = Shape(stride, padding, children, children * clusters, votes, uniform, eps)
    flat = x.flatten(1, 2)
    if not _worthwhile(flat, weight, bias, shape):
        return None
    parents: Tensor = ChunkedCapsules.apply(flat, weight, bias, shape)
    capsules: Tensor = parents.unflatten(1, (out_channels, -1))
    return capsules


def _worthwhile(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> bool:
    """Whether chunks help: not if one chunk contains all images and no gradient is needed."""
    inputs = (x, weight, bias)
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    return wanted or len(x) > chunk_size(x, weight, shape)


def chunk_size(x: Tensor, weight: Tensor, shape: Shape) -> int:
    """Number of images per chunk; at least one."""
    height, width = (
        windows_along(side, weight.shape[-1], shape.stride, shape.padding) for side in x.shape[2:]
    )
    chunk = CHUNK if x.is_cpu else DEVICE_CHUNK
    return max(1, chunk // (len(weight) * height * width * x.element_size()))


def cast_votes(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """Votes [B, I, K, C'*D', H', W'], in float32 or wider."""
    votes = plain.cast_votes(x, weight, bias, shape)
    return votes.to(wide_dtype(votes.dtype))


def statistics(votes: Tensor, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Centroids m and confidence r [B, I, ...], and deviations v - m in place of the votes."""
    centroids = votes.mean(2)
    deviations = votes.sub_(centroids.unsqueeze(2))
    if shape.uniform:
        return centroids, torch.ones_like(centroids), deviations
    return centroids, (deviations.square().mean(2) + shape.eps).rsqrt(), deviations
