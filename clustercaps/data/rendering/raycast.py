"""Ray casting: the nearest surface of several solids at every pixel of a view.

Along the ray of a pixel only the nearness s changes, so a half-space bounds s by a constant and a
quadric by the roots of a quadratic; a solid is an interval of s, and its upper end is visible. All
coefficients are polynomials in the pixel's x and y, so a solid costs a few additions per pixel of
the rectangle that it covers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from clustercaps.data.rendering.solids import Matrix, Solid

NOTHING = -1


@dataclass(frozen=True)
class Seen:
    """The nearest surfaces of a view.

    Args:
        nearness: nearness of the surface at each pixel; minus infinity if there is none.
        surface: its index in `gradients`; `NOTHING` if there is none.
        gradients: for each surface, the rows that map a homogeneous point of the scene to an
            outward normal vector.
    """

    nearness: Float64[np.ndarray, "rows columns"]
    surface: Int64[np.ndarray, "rows columns"]
    gradients: Float64[np.ndarray, "surfaces 3 4"]


def look(
    solids: Sequence[Solid],
    view: Matrix,
    columns: Float64[np.ndarray, "columns"],
    rows: Float64[np.ndarray, "rows"],
) -> Seen:
    """Find the nearest surface at every pixel.

    Args:
        solids: the solids of the scene.
        view: a view from `camera`.
        columns: image x of each column of pixels.
        rows: image y of each row.
    """
    nearness = np.full((len(rows), len(columns)), -np.inf)
    surface = np.full(nearness.shape, NOTHING)
    back = np.linalg.inv(view)
    count = 0
    for solid, (down, across) in zip(solids, _covered(solids, view, columns, rows), strict=True):
        if down.start < down.stop and across.start < across.stop:
            near, which = _upper_end(solid, back, columns[across], rows[down])
            nearer = near > nearness[down, across]
            np.copyto(nearness[down, across], near, where=nearer)
            np.copyto(surface[down, across], which + count, where=nearer)
        count += len(solid.planes) + (solid.quadric is not None)
    gradients = np.concatenate([_gradients(solid) for solid in solids])
    return Seen(nearness, surface, gradients)


def _covered(
    solids: Sequence[Solid], view: Matrix, columns: np.ndarray, rows: np.ndarray
) -> list[tuple[slice, slice]]:
    """For each solid, rows and columns of the rectangle that contains it."""
    corners = np.stack([solid.corners for solid in solids]) @ view[:, :3].T + view[:, 3]
    flat = corners[..., :2] / corners[..., 3:]
    ends = np.stack([flat.min(1), flat.max(1)], axis=1)  # [solids, 2, 2]
    across = np.searchsorted(columns, ends[..., 0]).tolist()
    down = np.searchsorted(rows, ends[..., 1]).tolist()
    return [(slice(*d), slice(*a)) for d, a in zip(down, across, strict=True)]


def _upper_end(
    solid: Solid, back: Matrix, columns: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Largest nearness inside the solid at each pixel, and the surface that bounds it.

    Surfaces are numbered planes first, then the quadric. Minus infinity if the ray misses.
    """
    x, y = columns[None, :], rows[:, None]
    high = np.full((len(rows), len(columns)), np.inf)
    low = np.full_like(high, -np.inf)
    which = np.full(high.shape, len(solid.planes))
    for number, (nx, ny, ns, n1) in enumerate(solid.planes @ back):
        # nx x + ny y + ns s + n1 <= 0. A plane seen edge-on still separates inside from outside.
        ns = ns if abs(ns) > 1e-12 else 1e-12
        bound = x * (-nx / ns) + (y * (-ny / ns) - n1 / ns)
        if ns > 0:
            np.copyto(which, number, where=bound < high)
            np.minimum(high, bound, out=high)
        else:
            np.maximum(low, bound, out=low)
    if solid.quadric is not None:
        form = back.T @ solid.quadric @ back
        # With a >= 0 the inside is between the roots; with a < 0, beyond one of them.
        a = form[2, 2] if abs(form[2, 2]) > 1e-12 else 1e-12
        middle = x * (-form[0, 2] / a) + (y * (-form[1, 2] / a) - form[3, 2] / a)
        spread = _spread(form, a, x, y)
        missed = spread < 0
        half = np.sqrt(np.maximum(spread, 0, out=spread), out=spread)
        if a > 0:
            root = middle + half
            np.copyto(which, len(solid.planes), where=root < high)
            np.minimum(high, root, out=high)
            np.maximum(low, middle - half, out=low)
        elif solid.nappe is not None and (solid.nappe @ back)[2] > 0:
            np.maximum(low, middle + half, out=low)
        else:
            root = middle - half
            np.copyto(which, len(solid.planes), where=root < high)
            np.minimum(high, root, out=high)
        high[missed] = -np.inf
    high[high < low] = -np.inf
    return high, which


def _spread(form: Matrix, a: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squared half distance of the roots: (b^2 - a c) / a^2, a polynomial in x and y."""
    poly = (np.outer(form[2], form[2]) - a * form) / a**2
    in_x = poly[0, 0] * x * x + 2 * poly[0, 3] * x + poly[3, 3]
    in_y = poly[1, 1] * y * y + 2 * poly[1, 3] * y
    squared: np.ndarray = (2 * poly[0, 1] * y) * x + in_x + in_y
    return squared


def _gradients(solid: Solid) -> Float64[np.ndarray, "surfaces 3 4"]:
    rows = np.zeros((len(solid.planes) + (solid.quadric is not None), 3, 4))
    rows[: len(solid.planes), :, 3] = solid.planes[:, :3]
    if solid.quadric is not None:
        rows[-1] = solid.quadric[:3]
    return rows
