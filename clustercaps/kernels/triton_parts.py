"""Parts of the Triton kernels in `triton_layer.py`: patches, rows of a cluster, their gradients.

`sizes` are (children, in_dim, height, width, out_height, out_width), `padded` the sizes of the
padded weights (taps, parents), and `places` what `places_at` returns.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def places_at(
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
def patches_at(x_ptr, child, tap, places, sizes, kernel: tl.constexpr):
    """What the taps read at the places: [position, tap]; 1 for the bias."""
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
def rows_of(
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
        patches = patches_at(x_ptr, child, tap, places, sizes, kernel)
        added = ()
        for r in tl.static_range(rows):
            line = (block * rows + r) * padded_taps + tap
            weights = tl.load(weight_ptr + line[:, None] * padded_parents + parent[None, :])
            added += (tl.dot(patches, weights, sums[r], input_precision=precision, out_dtype=wide),)
        sums = added
    return sums


@triton.jit
@no_type_check
def statistics(
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
    """Centroid m and confidence r = 1 / sqrt(var + eps) of a cluster, and its last rows."""
    centroid = tl.zeros((places[1].shape[0], parent.shape[0]), wide)
    variance = tl.zeros_like(centroid)
    sums = ()
    for _ in tl.static_range(rows):
        sums += (centroid,)
    for group in range(groups):
        block = cluster * groups + group
        sums = rows_of(
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
def in_parents(places, parent, parents, sizes):
    """Offsets in maps of the parents [B, parents, H', W'], and which are inside."""
    _, _, _, _, out_height, out_width = sizes
    image, place, _, _, inside = places
    entry = image[:, None] * parents + parent[None, :]
    offsets = entry * (out_height * out_width) + place[:, None]
    return offsets, inside[:, None] & (parent < parents)[None, :]


@triton.jit
@no_type_check
def shares_of(parent_pointers, centroid, confidence, offsets, known):
    """Gradient of the centroid, and the factor of a contrast in its own gradient."""
    gradient_ptr, capsules_ptr, scale_ptr = parent_pointers
    share = tl.load(gradient_ptr + offsets, mask=known, other=0.0)
    share *= tl.load(scale_ptr + offsets, mask=known, other=0.0) * confidence
    capsule = tl.load(capsules_ptr + offsets, mask=known, other=0.0)
    return share, share * (capsule - centroid) * confidence * confidence


@triton.jit
@no_type_check
def row_gradients(sums, group, share, pull, rows: tl.constexpr):
    """Gradients of the rows of a group, each [position, parent]."""
    gradients = (tl.where(group == 0, share, pull * sums[0]),)
    for r in tl.static_range(1, rows):
        gradients += (pull * sums[r],)
    return gradients


@triton.jit
@no_type_check
def times_weights(
    gradients,
    patches_grad,
    weight_ptr,
    block,
    tap,
    parent,
    padded,
    narrow: tl.constexpr,
    precision: tl.constexpr,
):
    """Add a group's part to the gradient of the patches, [position, tap]."""
    padded_taps, padded_parents = padded
    rows: tl.constexpr = len(gradients)
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
            out_dtype=patches_grad.dtype,
        )
    return patches_grad


@triton.jit
@no_type_check
def times_patches(gradients, patches, sums, narrow: tl.constexpr, precision: tl.constexpr):
    """Add the part of some positions to the gradients of the rows' weights, each [tap, parent]."""
    added = ()
    for r in tl.static_range(len(gradients)):
        added += (
            tl.dot(
                patches,
                gradients[r].to(narrow),
                sums[r],
                input_precision=precision,
                out_dtype=sums[r].dtype,
            ),
        )
    return added


@triton.jit
@no_type_check
def store_rows(sums, pointer, block, tap, parent, padded):
    """Write the gradients of a group's weights."""
    padded_taps, padded_parents = padded
    rows: tl.constexpr = len(sums)
    for r in tl.static_range(rows):
        # 64 bits: there may be many parts.
        line = (block * rows + r).to(tl.int64) * padded_taps + tap
        at = line[:, None] * padded_parents + parent[None, :]
        tl.store(pointer + at, sums[r], mask=(tap < padded_taps)[:, None])
