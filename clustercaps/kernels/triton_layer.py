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


@triton.jit
@no_type_check
def _places(
    first, positions, sizes, stride: tl.constexpr, padding: tl.constexpr, block: tl.constexpr
):
    """Image, place in the parents' map, top left corner of the window, and which are inside."""
    _, _, _, _, out_height, out_width = sizes
    position = first + tl.arange(0, block)
    inside = position < positions
    area = out_height * out_width
    # 64 bits, because a batch may have more than 2^31 entries.
    image = (position // area).to(tl.int64)
    place = position % area
    top = place // out_width * stride - padding
    left = place % out_width * stride - padding
    return image, place, top, left, inside


@triton.jit
@no_type_check
def _patches(x_ptr, child, tap, places, sizes, kernel: tl.constexpr):
    """What the taps read at the places: [position, tap]; zeros outside of the maps, 1 for the bias."""
    children, in_dim, height, width, _, _ = sizes
    image, _, top, left, inside = places
    dim = tap // (kernel * kernel)
    row = top[:, None] + (tap // kernel % kernel)[None, :]
    column = left[:, None] + (tap % kernel)[None, :]
    channel = (image[:, None] * children + child) * in_dim + dim[None, :]
    known = inside[:, None] & (dim < in_dim)[None, :]
    known &= (row >= 0) & (row < height) & (column >= 0) & (column < width)
    # What is not read is zero, but one for the bias.
    other = (tap == in_dim * kernel * kernel).to(tl.float32).to(x_ptr.dtype.element_ty)
    pointers = x_ptr + (channel * height + row) * width + column
    return tl.load(pointers, mask=known, other=tl.broadcast_to(other[None, :], known.shape))


@triton.jit
@no_type_check
def _rows(
    pointers,
    block,
    child,
    parent,
    places,
    sizes,
    padded,
    kernel: tl.constexpr,
    rows: tl.constexpr,
    taps: tl.constexpr,
    precision: tl.constexpr,
    wide: tl.constexpr,
):
    """The rows of a group, each [position, parent]; `block` counts the groups of all clusters."""
    x_ptr, weight_ptr = pointers
    padded_taps, padded_parents = padded
    sums = ()
    for _ in tl.static_range(rows):
        sums += (tl.zeros((places[1].shape[0], parent.shape[0]), wide),)
    for first in range(0, padded_taps, taps):
        tap = first + tl.arange(0, taps)
        patches = _patches(x_ptr, child, tap, places, sizes, kernel)
        added = ()
        for r in tl.static_range(rows):
            line = (block * rows + r) * padded_taps + tap
            weights = tl.load(weight_ptr + line[:, None] * padded_parents + parent[None, :])
            added += (
                tl.dot(patches, weights, sums[r], input_precision=precision, out_dtype=wide),
            )
        sums = added
    return sums


@triton.jit
@no_type_check
def _statistics(
    pointers,
    cluster,
    child,
    parent,
    places,
    sizes,
    padded,
    kernel: tl.constexpr,
    rows: tl.constexpr,
    groups: tl.constexpr,
    uniform: tl.constexpr,
    eps: tl.constexpr,
    taps: tl.constexpr,
    precision: tl.constexpr,
    wide: tl.constexpr,
):
    """Centroid m and confidence r = 1 / sqrt(var + eps) of a cluster, and its last group of rows."""
    centroid = tl.zeros((places[1].shape[0], parent.shape[0]), wide)
    variance = tl.zeros_like(centroid)
    sums = ()
    for r in tl.static_range(rows):
        sums += (centroid,)
    for group in range(groups):
        block = cluster * groups + group
        sums = _rows(
            *(pointers, block, child, parent, places, sizes, padded),
            *(kernel, rows, taps, precision, wide),
        )
        # Row 0 of the first group is the centroid; all others are contrasts.
        variance += tl.where(group == 0, 0.0, sums[0] * sums[0])
        centroid = tl.where(group == 0, sums[0], centroid)
        for r in tl.static_range(1, rows):
            variance += sums[r] * sums[r]
    if uniform:
        return centroid, tl.zeros_like(centroid) + 1.0, sums
    return centroid, tl.rsqrt(variance + eps), sums


@triton.jit
@no_type_check
def _in_parents(places, parent, parents, sizes):
    """Offsets in maps of the parents [B, parents, H', W'], and which are inside."""
    _, _, _, _, out_height, out_width = sizes
    image, place, _, _, inside = places
    entry = image[:, None] * parents + parent[None, :]
    offsets = entry * (out_height * out_width) + place[:, None]
    return offsets, inside[:, None] & (parent < parents)[None, :]


@triton.jit
@no_type_check
def _shares(parent_pointers, centroid, confidence, offsets, known):
    """Gradient of the centroid, and the factor of a contrast in its own gradient."""
    gradient_ptr, capsules_ptr, scale_ptr = parent_pointers
    share = tl.load(gradient_ptr + offsets, mask=known, other=0.0)
    share *= tl.load(scale_ptr + offsets, mask=known, other=0.0) * confidence
    capsule = tl.load(capsules_ptr + offsets, mask=known, other=0.0)
    return share, share * (capsule - centroid) * confidence * confidence


@triton.jit
@no_type_check
def _row_gradients(sums, group, share, pull, rows: tl.constexpr):
    """Gradients of the rows of a group, each [position, parent]."""
    gradients = (tl.where(group == 0, share, pull * sums[0]),)
    for r in tl.static_range(1, rows):
        gradients += (pull * sums[r],)
    return gradients


@triton.jit
@no_type_check
def capsules_kernel(
    x_ptr,
    weight_ptr,
    capsules_ptr,
    scale_ptr,
    positions,
    parents,
    children,
    per_child,
    in_dim,
    height,
    width,
    out_height,
    out_width,
    padded_taps,
    padded_parents,
    kernel: tl.constexpr,
    stride: tl.constexpr,
    padding: tl.constexpr,
    rows: tl.constexpr,
    groups: tl.constexpr,
    uniform: tl.constexpr,
    eps: tl.constexpr,
    precision: tl.constexpr,
    tile_positions: tl.constexpr,
    tile_parents: tl.constexpr,
    tile_taps: tl.constexpr,
):
    """Parents s and scale 1 / R of a tile. Grid: tiles of positions, tiles of parents."""
    wide: tl.constexpr = capsules_ptr.dtype.element_ty
    pointers = (x_ptr, weight_ptr)
    sizes = (children, in_dim, height, width, out_height, out_width)
    padded = (padded_taps, padded_parents)
    first = tl.program_id(0) * tile_positions
    places = _places(first, positions, sizes, stride, padding, tile_positions)
    parent = tl.program_id(1) * tile_parents + tl.arange(0, tile_parents)
    weighted = tl.zeros((tile_positions, tile_parents), wide)
    total = tl.zeros((tile_positions, tile_parents), wide)
    for cluster in range(children * per_child):
        centroid, confidence, _ = _statistics(
            *(pointers, cluster, cluster // per_child, parent, places, sizes, padded),
            *(kernel, rows, groups, uniform, eps, tile_taps, precision, wide),
        )
        weighted += confidence * centroid
        total += confidence
    offsets, known = _in_parents(places, parent, parents, sizes)
    tl.store(capsules_ptr + offsets, weighted / total, mask=known)
    tl.store(scale_ptr + offsets, 1.0 / total, mask=known)


@triton.jit
@no_type_check
def patches_grad_kernel(
    x_ptr,
    weight_ptr,
    gradient_ptr,
    capsules_ptr,
    scale_ptr,
    patches_grad_ptr,
    positions,
    parents,
    children,
    per_child,
    in_dim,
    height,
    width,
    out_height,
    out_width,
    padded_taps,
    padded_parents,
    kernel: tl.constexpr,
    stride: tl.constexpr,
    padding: tl.constexpr,
    rows: tl.constexpr,
    groups: tl.constexpr,
    uniform: tl.constexpr,
    eps: tl.constexpr,
    precision: tl.constexpr,
    tile_positions: tl.constexpr,
    tile_parents: tl.constexpr,
    tile_taps: tl.constexpr,
    grad_taps: tl.constexpr,
):
    """Gradient of the patches [B, child, tap, H', W']. Grid: positions, children, taps."""
    wide: tl.constexpr = capsules_ptr.dtype.element_ty
    narrow: tl.constexpr = x_ptr.dtype.element_ty
    pointers = (x_ptr, weight_ptr)
    sizes = (children, in_dim, height, width, out_height, out_width)
    padded = (padded_taps, padded_parents)
    first = tl.program_id(0) * tile_positions
    places = _places(first, positions, sizes, stride, padding, tile_positions)
    child = tl.program_id(1)
    tap = tl.program_id(2) * grad_taps + tl.arange(0, grad_taps)
    patches_grad = tl.zeros((tile_positions, grad_taps), wide)
    tiles = padded_parents // tile_parents
    for step in range(per_child * tiles):
        cluster = child * per_child + step // tiles
        parent = step % tiles * tile_parents + tl.arange(0, tile_parents)
        centroid, confidence, sums = _statistics(
            *(pointers, cluster, child, parent, places, sizes, padded),
            *(kernel, rows, groups, uniform, eps, tile_taps, precision, wide),
        )
        offsets, known = _in_parents(places, parent, parents, sizes)
        share, pull = _shares(
            (gradient_ptr, capsules_ptr, scale_ptr), centroid, confidence, offsets, known
        )
        for group in range(groups):
            block = cluster * groups + group
            if groups > 1:
                sums = _rows(
                    *(pointers, block, child, parent, places, sizes, padded),
                    *(kernel, rows, tile_taps, precision, wide),
                )
            gradients = _row_gradients(sums, group, share, pull, rows)
            for r in tl.static_range(rows):
                line = (block * rows + r) * padded_taps + tap
                # Transposed: [parent, tap].
                at = line[None, :] * padded_parents + parent[:, None]
                weights = tl.load(weight_ptr + at, mask=(tap < padded_taps)[None, :], other=0.0)
                patches_grad = tl.dot(
                    gradients[r].to(narrow),
                    weights,
                    patches_grad,
                    input_precision=precision,
                    out_dtype=wide,
                )
    image, place, _, _, inside = places
    taps = in_dim * kernel * kernel
    line = (image[:, None] * children + child) * taps + tap[None, :]
    offsets = line * (out_height * out_width) + place[:, None]
    tl.store(
        patches_grad_ptr + offsets, patches_grad, mask=inside[:, None] & (tap < taps)[None, :]
    )


@triton.jit
@no_type_check
def weight_grad_kernel(
    x_ptr,
    weight_ptr,
    gradient_ptr,
    capsules_ptr,
    scale_ptr,
    weight_grad_ptr,
    positions,
    positions_each,
    parents,
    children,
    per_child,
    in_dim,
    height,
    width,
    out_height,
    out_width,
    padded_taps,
    padded_parents,
    kernel: tl.constexpr,
    stride: tl.constexpr,
    padding: tl.constexpr,
    rows: tl.constexpr,
    groups: tl.constexpr,
    uniform: tl.constexpr,
    eps: tl.constexpr,
    precision: tl.constexpr,
    tile_positions: tl.constexpr,
    tile_parents: tl.constexpr,
    tile_taps: tl.constexpr,
    grad_taps: tl.constexpr,
):
    """Partial gradients of the rows' weights [part, cluster, group, row, tap, parent].

    Grid: clusters x groups x tiles of parents, tiles of taps, parts of the positions; the parts are
    added afterwards, in order.
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
        places = _places(first, end, sizes, stride, padding, tile_positions)
        centroid, confidence, sums = _statistics(
            *(pointers, cluster, child, parent, places, sizes, padded),
            *(kernel, rows, groups, uniform, eps, tile_taps, precision, wide),
        )
        if groups > 1:
            sums = _rows(
                *(pointers, block, child, parent, places, sizes, padded),
                *(kernel, rows, tile_taps, precision, wide),
            )
        offsets, known = _in_parents(places, parent, parents, sizes)
        share, pull = _shares(
            (gradient_ptr, capsules_ptr, scale_ptr), centroid, confidence, offsets, known
        )
        gradients = _row_gradients(sums, block % groups, share, pull, rows)
        patches = tl.trans(_patches(x_ptr, child, tap, places, sizes, kernel))
        added = ()
        for r in tl.static_range(rows):
            added += (
                tl.dot(
                    patches,
                    gradients[r].to(narrow),
                    weight_grads[r],
                    input_precision=precision,
                    out_dtype=wide,
                ),
            )
        weight_grads = added
    blocks = children * per_child * groups
    for r in tl.static_range(rows):
        # 64 bits: there may be many parts.
        line = ((part * blocks + block) * rows + r).to(tl.int64) * padded_taps + tap
        at = line[:, None] * padded_parents + parent[None, :]
        tl.store(weight_grad_ptr + at, weight_grads[r], mask=(tap < padded_taps)[:, None])
