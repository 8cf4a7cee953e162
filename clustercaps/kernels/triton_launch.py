"""Tiles and arguments of the Triton kernels, and the launches of their backward pass."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.library import wrap_triton
from torch.nn.functional import fold, pad

from clustercaps.kernels.contrasts import to_contrasts
from clustercaps.kernels.triton_layer import patches_grad_kernel, weight_grad_kernel

# Rows of a cluster that are computed at a time.
GROUP = 8
# Sums of rows that a program keeps in registers, 32 for each thread of its 4 warps: more would
# spill into memory.
SUMS = 4096
# Warps of a program, and of one that adds up gradients of weights; loads are not pipelined, which
# would need more registers.
WARPS = 4
GRAD_WARPS = 8
STAGES = 1
# Largest size of the gradient of the patches that is stored at a time, in bytes.
PATCHES = 256 * 2**20
# Programs that keep a large GPU busy: so many parts are added up for the gradient of the weights.
PROGRAMS = 512


class Tiles(NamedTuple):
    """Sizes of what a program computes at a time."""

    # Rows of a cluster, and groups of as many rows.
    rows: int
    groups: int
    # Powers of two, at least 16.
    positions: int
    parents: int
    taps: int
    # Taps for which a program of the backward pass computes gradients.
    grad_taps: int


def choose_tiles(rows: int, taps: int) -> Tiles:
    """Tiles that fit in the registers."""
    groups = -(-rows // GROUP)
    each = -(-rows // groups)
    every = _power_above(taps)
    room = _power_below(SUMS // (each * 16))
    return Tiles(each, groups, min(64, room), 16, min(every, 32), min(every, 64))


def _power_above(number: int) -> int:
    return max(16, 1 << (number - 1).bit_length())


def _power_below(number: int) -> int:
    return max(16, 1 << (number.bit_length() - 1))


class Launch(NamedTuple):
    """What all three kernels get: padded weights of the rows, and sizes."""

    weight: Tensor
    positions: int
    # In the order of the kernels' arguments.
    sizes: tuple[int, ...]
    # Kernel size, stride, padding.
    window: tuple[int, int, int]
    tiles: Tiles

    @property
    def parent_tiles(self) -> int:
        """Tiles of parents."""
        return self.weight.shape[3] // self.tiles.parents

    @property
    def taps(self) -> int:
        """Entries that a vote reads, without the bias."""
        return self.sizes[3] * self.window[0] ** 2

    @staticmethod
    def of(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        capsules: Tensor,
        window: tuple[int, int],
        clusters: int,
        votes: int,
        uniform: bool,
    ) -> "Launch":
        """Transform and pad the weights, and choose tiles."""
        children, kernel = x.shape[1], weight.shape[-1]
        parents, taps = capsules.shape[1] * capsules.shape[2], x.shape[2] * kernel**2
        rows = 1 if uniform else votes
        tiles = choose_tiles(rows, taps + 1)
        if bias is None:
            bias = weight.new_zeros(len(weight))
        both = torch.cat([weight.flatten(1), bias.unsqueeze(1)], 1)
        turned = to_contrasts(both.reshape(children * clusters, votes, parents, -1), uniform)
        beyond = (0, -parents % tiles.parents, 0, -(taps + 1) % tiles.taps)
        more = (0, tiles.rows * tiles.groups - rows)
        padded = pad(turned, (*beyond, *more)).to(x.dtype).contiguous()
        area = capsules.shape[3:]
        sizes = (parents, children, clusters, *x.shape[2:], *area, *padded.shape[2:])
        positions = x.shape[0] * area[0] * area[1]
        return Launch(padded, positions, sizes, (kernel, *window), tiles)


def x_gradient(
    launch: Launch,
    x: Tensor,
    saved: tuple[Tensor, Tensor, Tensor],
    uniform: bool,
    eps: float,
    precision: str,
) -> Tensor:
    """Gradients of the patches of some images at a time, added up where windows overlap."""
    tiles, taps, (kernel, stride, padding) = launch.tiles, launch.taps, launch.window
    height, width = x.shape[3:]
    area = launch.positions // x.shape[0]
    row = x.shape[1] * taps
    images = max(1, PATCHES // (row * area * saved[0].element_size()))
    found = []
    for some, *of_parents in zip(x.split(images), *(s.split(images) for s in saved), strict=True):
        patches = saved[0].new_empty((len(some), row, area))
        positions = len(some) * area
        grid = (
            -(-positions // tiles.positions),
            x.shape[1],
            -(-taps // tiles.grad_taps),
        )
        wrap_triton(patches_grad_kernel)[grid](
            *(some, launch.weight, *of_parents, patches, positions, *launch.sizes),
            *(*launch.window, *tiles[:2], uniform, eps, precision),
            *tiles[2:],
            num_warps=WARPS,
            num_stages=STAGES,
        )
        found.append(fold(patches, (height, width), kernel, 1, padding, stride))
    return torch.cat(found).reshape(x.shape).to(x.dtype)


def weight_gradient(
    launch: Launch,
    x: Tensor,
    saved: tuple[Tensor, Tensor, Tensor],
    known: int,
    uniform: bool,
    eps: float,
    precision: str,
) -> Tensor:
    """Gradients of the `known` rows' weights [cluster, row, tap, parent], the bias the last tap."""
    tiles, (clusters, rows, padded_taps, padded_parents) = launch.tiles, launch.weight.shape
    tap_tiles = -(-(launch.taps + 1) // tiles.grad_taps)
    blocks = clusters * tiles.groups * launch.parent_tiles
    programs = blocks * tap_tiles
    whole = -(-launch.positions // tiles.positions)
    parts = min(-(-PROGRAMS // programs), whole)
    each = -(-whole // parts) * tiles.positions
    parts = -(-launch.positions // each)
    weights = saved[0].new_empty((parts, clusters, rows, padded_taps, padded_parents))
    grid = (blocks, tap_tiles, parts)
    wrap_triton(weight_grad_kernel)[grid](
        *(x, launch.weight, *saved, weights, launch.positions, each, *launch.sizes),
        *(*launch.window, *tiles[:2], uniform, eps, precision),
        *tiles[2:],
        num_warps=GRAD_WARPS,
        num_stages=STAGES,
    )
    return weights.sum(0)[:, :known, : launch.taps + 1, : launch.sizes[0]]
