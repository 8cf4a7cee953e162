"""Shadow maps: the view of the object from each lamp.

A surface point is in shadow if something nearer covers it in the view of the lamp. The ground is in
shadow where the lamp sees the object, which needs no depth and can be blurred in advance for a soft
edge.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from clustercaps.data.rendering.camera import lamp_view
from clustercaps.data.rendering.raycast import look
from clustercaps.data.rendering.solids import Matrix, Solid

# Pixels and half width of a lamp's view of the object, whose radius is 1.
PIXELS = 128
REACH = 1.5
STEP = 2 * REACH / PIXELS
# A point is tested at this distance from its surface, so that the surface does not shade itself.
LIFT = 0.045


@dataclass(frozen=True)
class Shadow:
    """The shadow of an object for one lamp.

    Args:
        view: view of the lamp, centred on the object.
        nearness: nearness of the object in the lamp's view; minus infinity outside it.
        veil: fraction of the lamp's light that the object blocks, 0 to 1, blurred.
    """

    view: Matrix
    nearness: Float64[np.ndarray, "rows columns"]
    veil: Float64[np.ndarray, "rows columns"]

    def on_ground(self, points: Float[np.ndarray, "points 4"]) -> Float[np.ndarray, "points"]:
        """Fraction of light that is blocked at points of the ground."""
        column, row = self.view[:2] @ points.T / STEP + (PIXELS / 2 - 0.5)
        # The border of the veil is empty, so clipping extends it.
        column, row = (np.clip(place, 0, PIXELS - 1.001) for place in (column, row))
        left, top = column.astype(np.int64), row.astype(np.int64)
        right, down = column - left, row - top
        corner = top * PIXELS + left
        flat = self.veil.ravel()
        upper = flat[corner] * (1 - right) + flat[corner + 1] * right
        lower = flat[corner + PIXELS] * (1 - right) + flat[corner + PIXELS + 1] * right
        taken: np.ndarray = upper * (1 - down) + lower * down
        return taken

    def on_toy(
        self,
        points: Float[np.ndarray, "points 4"],
        normals: Float[np.ndarray, "points 3"],
        nudges: Float[np.ndarray, "points 2"],
    ) -> Float[np.ndarray, "points"]:
        """1 for points of the object that this lamp reaches, 0 for the others.

        Args:
            points: homogeneous points.
            normals: unit normals of the surface at these points.
            nudges: offset of each point in the lamp's view, in its pixels; different offsets for
                the subpixels of a camera's pixel soften the edge of the shadow.
        """
        seen = points @ self.view[:3].T + normals @ (LIFT * self.view[:3, :3].T)
        places = np.clip(seen[:, :2] / STEP + nudges + PIXELS / 2, 0, PIXELS - 1).astype(np.int64)
        nearest = self.nearness[places[:, 1], places[:, 0]]
        lit: np.ndarray = nearest <= seen[:, 2]
        return lit.astype(np.float64)


def cast(solids: Sequence[Solid], direction: np.ndarray, middle: Matrix, blur: int) -> Shadow:
    """The shadow of several solids for a lamp.

    Args:
        solids: the object.
        direction: direction from the object to the lamp.
        middle: moves the centre of the object to the origin, to centre the lamp's view on it.
        blur: width of the blur on the ground, in pixels of the lamp's view.
    """
    view = lamp_view(direction) @ middle
    places = (np.arange(PIXELS) + 0.5 - PIXELS / 2) * STEP
    nearness = look(solids, view, places, places).nearness
    veil = np.isfinite(nearness).astype(np.float64)
    return Shadow(view, nearness, blurred(blurred(veil, blur).T, blur).T)


def blurred(values: Float64[np.ndarray, "rows columns"], reach: int) -> np.ndarray:
    """Blur each column with a Hann window of `reach` rows to each side; zero outside."""
    weights = np.hanning(2 * reach + 3)[1:-1]
    padded = np.pad(values, ((reach, reach), (0, 0)))
    total = np.zeros_like(values)
    for offset, weight in enumerate(weights / weights.sum()):
        total += weight * padded[offset : offset + len(values)]
    return total
