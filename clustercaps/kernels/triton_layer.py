"""The capsule layer on a GPU in Triton: votes are computed and used in registers, never stored.

A program computes a tile of positions (of all images) x parent entries. The convolution is
implicit: the patches of a tile are gathered from the feature maps and multiplied by the weights of
mean and contrasts (`contrasts.py`), one product per row of a cluster, a group of rows at a time:

    row 0:       the centroid m_i
    other rows:  contrasts c_ij with var_i = sum_j c_ij^2,  r_i = 1 / sqrt(var_i + eps)

Forward: a loop over the clusters sums r_i m_i and r_i; s and 1 / R are the only results. Backward:
the rows are computed again, and with g = dL/ds,

    dL/dm_i = g r_i / R,    dL/dc_ij = -(g r_i / R) (m_i - s) r_i^2 c_ij

are multiplied by the weights (gradient of the patches) and by the patches (gradient of the
weights). Every sum has a fixed order: no atomics.

Weights are [cluster, group, row, tap, parent], with rows, taps and parents padded by zeros to whole
groups and tiles: a row of zeros adds nothing to the variance. A tap is (in_dim, window row, window
column); one more tap always reads 1, and its weight is the bias. Importing this file needs the
package triton.
"""

from typing import no_type_check

import triton
import triton.language as tl

from clustercaps.kernels.triton_parts import (
    in_parents,
    patches_at,
    places_at,
    row_gradients,
    rows_of,
    shares_of,
    statistics,
    store_rows,
    times_patches,
    times_weights,
)

# Arguments of the kernels stand in groups: pointers, sizes, constants.
# fmt: off


@triton.jit
@no_type_check
def capsules_kernel(
    x_ptr, weight_ptr, capsules_ptr, scale_ptr,
    positions, parents, children, per_child, in_dim, height, width, out_height, out_width,
    padded_taps, padded_parents,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, rows: tl.constexpr,
    groups: tl.constexpr, uniform: tl.constexpr, eps: tl.constexpr, precision: tl.constexpr,
    tile_positions: tl.constexpr, tile_parents: tl.constexpr, tile_taps: tl.constexpr,
):
    """Parents s and scale 1 / R of a tile. Grid: tiles of positions, tiles of parents."""
    wide: tl.constexpr = capsules_ptr.dtype.element_ty
    pointers = (x_ptr, weight_ptr)
    sizes = (children, in_dim, height, width, out_height, out_width)
    padded = (padded_taps, padded_parents)
    first = tl.program_id(0) * tile_positions
    places = places_at(first, positions, sizes, stride, padding, tile_positions)
    parent = tl.program_id(1) * tile_parents + tl.arange(0, tile_parents)
    weighted = tl.zeros((tile_positions, tile_parents), wide)
    total = tl.zeros((tile_positions, tile_parents), wide)
    for cluster in range(children * per_child):
        centroid, confidence, _ = statistics(
            *(pointers, cluster, cluster // per_child, parent, places, sizes, padded),
            *(kernel, rows, groups, uniform, eps, tile_taps, precision, wide),
        )
        weighted += confidence * centroid
        total += confidence
    offsets, known = in_parents(places, parent, parents, sizes)
    tl.store(capsules_ptr + offsets, weighted / total, mask=known)
    tl.store(scale_ptr + offsets, 1.0 / total, mask=known)


@triton.jit
@no_type_check
def patches_grad_kernel(
    x_ptr, weight_ptr, gradient_ptr, capsules_ptr, scale_ptr, patches_grad_ptr,
    positions, parents, children, per_child, in_dim, height, width, out_height, out_width,
    padded_taps, padded_parents,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, rows: tl.constexpr,
    groups: tl.constexpr, uniform: tl.constexpr, eps: tl.constexpr, precision: tl.constexpr,
    tile_positions: tl.constexpr, tile_parents: tl.constexpr, tile_taps: tl.constexpr,
    grad_taps: tl.constexpr,
):
    """Gradient of the patches [B, child, tap, H', W']. Grid: positions, children, taps."""
    wide: tl.constexpr = capsules_ptr.dtype.element_ty
    narrow: tl.constexpr = x_ptr.dtype.element_ty
    pointers = (x_ptr, weight_ptr)
    sizes = (children, in_dim, height, width, out_height, out_width)
    padded = (padded_taps, padded_parents)
    first = tl.program_id(0) * tile_positions
    places = places_at(first, positions, sizes, stride, padding, tile_positions)
    child = tl.program_id(1)
    tap = tl.program_id(2) * grad_taps + tl.arange(0, grad_taps)
    patches_grad = tl.zeros((tile_positions, grad_taps), wide)
    tiles = padded_parents // tile_parents
    for step in range(per_child * tiles):
        cluster = child * per_child + step // tiles
        parent = step % tiles * tile_parents + tl.arange(0, tile_parents)
        centroid, confidence, sums = statistics(
            *(pointers, cluster, child, parent, places, sizes, padded),
            *(kernel, rows, groups, uniform, eps, tile_taps, precision, wide),
        )
        offsets, known = in_parents(places, parent, parents, sizes)
        share, pull = shares_of(
            (gradient_ptr, capsules_ptr, scale_ptr), centroid, confidence, offsets, known
        )
        for group in range(groups):
            block = cluster * groups + group
            if groups > 1:
                sums = rows_of(
                    *(pointers, block, child, parent, places, sizes, padded),
                    *(kernel, rows, tile_taps, precision, wide),
                )
            gradients = row_gradients(sums, group, share, pull, rows)
            patches_grad = times_weights(
                gradients, patches_grad, weight_ptr, block, tap, parent, padded, narrow, precision
            )
    image, place, _, _, inside = places
    taps = in_dim * kernel * kernel
    line = (image[:, None] * children + child) * taps + tap[None, :]
    offsets = line * (out_height * out_width) + place[:, None]
    tl.store(patches_grad_ptr + offsets, patches_grad, mask=inside[:, None] & (tap < taps)[None, :])


@triton.jit
@no_type_check
def weight_grad_kernel(
    x_ptr, weight_ptr, gradient_ptr, capsules_ptr, scale_ptr, weight_grad_ptr,
    positions, positions_each, parents, children, per_child, in_dim, height, width, out_height,
    out_width, padded_taps, padded_parents,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, rows: tl.constexpr,
    groups: tl.constexpr, uniform: tl.constexpr, eps: tl.constexpr, precision: tl.constexpr,
    tile_positions: tl.constexpr, tile_parents: tl.constexpr, tile_taps: tl.constexpr,
    grad_taps: tl.constexpr,
):
    """Gradients of the rows' weights [part, cluster, group, row, tap, parent].

    Grid: clusters x groups x tiles of parents, taps, parts of the positions, to be added later.
    """
    wide: tl.constexpr = capsules_ptr.dtype.element_ty
    narrow: tl.constexpr = x_ptr.dtype.element_ty
    pointers = (x_ptr, weight_ptr)
    sizes = (children, in_dim, height, width, out_height, out_width)
    padded = (padded_taps, padded_parents)
    tiles = padded_parents // tile_parents
    block = tl.program_id(0) // tiles
    cluster = block // groups
    child = cluster // per_child
    parent = tl.program_id(0) % tiles * tile_parents + tl.arange(0, tile_parents)
    tap = tl.program_id(1) * grad_taps + tl.arange(0, grad_taps)
    part = tl.program_id(2)
    weight_grads = ()
    for _ in tl.static_range(rows):
        weight_grads += (tl.zeros((grad_taps, tile_parents), wide),)
    begin = part * positions_each
    end = tl.minimum(begin + positions_each, positions)
    for first in range(begin, end, tile_positions):
        places = places_at(first, end, sizes, stride, padding, tile_positions)
        centroid, confidence, sums = statistics(
            *(pointers, cluster, child, parent, places, sizes, padded),
            *(kernel, rows, groups, uniform, eps, tile_taps, precision, wide),
        )
        if groups > 1:
            sums = rows_of(
                *(pointers, block, child, parent, places, sizes, padded),
                *(kernel, rows, tile_taps, precision, wide),
            )
        offsets, known = in_parents(places, parent, parents, sizes)
        share, pull = shares_of(
            (gradient_ptr, capsules_ptr, scale_ptr), centroid, confidence, offsets, known
        )
        gradients = row_gradients(sums, block % groups, share, pull, rows)
        patches = tl.trans(patches_at(x_ptr, child, tap, places, sizes, kernel))
        weight_grads = times_patches(gradients, patches, weight_grads, narrow, precision)
    block += part * children * per_child * groups
    store_rows(weight_grads, weight_grad_ptr, block, tap, parent, padded)
