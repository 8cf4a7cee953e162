"""Shadows, from what each lamp sees of the toy.

A surface point lies in shadow if the lamp sees something nearer in its place. The ground lies in
shadow where the lamp sees the toy at all, which needs no depth and can be blurred beforehand into a
soft edge.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from clustercaps.data.rendering.camera import lamp_view
from clustercaps.data.rendering.raycast import look
from clustercaps.data.rendering.solids import Matrix, Solid

# Pixels and half width of a lamp's picture of the toy, whose radius is 1.
PIXELS = 128
REACH = 1.5
STEP = 2 * REACH / PIXELS
# A point is tested this far off its surface, so that the surface does not shade itself.
LIFT = 0.045


@dataclass(frozen=True)
class Shadow:
    """The shadow of a toy under one lamp.

    Args:
        view: of the lamp, turned about the toy's middle.
        nearness: of the toy in the lamp's picture; minus infinity beside it.
        veil: how much of the lamp's light the toy takes from the ground behind it, 0 to 1, blurred.
    """

    view: Matrix
    nearness: Float64[np.ndarray, "rows columns"]
    veil: Float64[np.ndarray, "rows columns"]

    def on_ground(self, points: Float[np.ndarray, "points 4"]) -> Float[np.ndarray, "points"]:
        """How much light is taken from points of the ground."""
        column, row = self.view[:2] @ points.T / STEP + (PIXELS / 2 - 0.5)
        # The border of the veil is empty, so clipping continues it without end.
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
        """1 for points of the toy that this lamp reaches, 0 for the others.

        Args:
            points: homogeneous.
            normals: of the surface there, of length 1.
            nudges: of each point in the lamp's picture, in its pixels; different ones for the parts
                of a camera's pixel make the edge of the shadow soft.
        """
        seen = points @ self.view[:3].T + normals @ (LIFT * self.view[:3, :3].T)
        places = np.clip(seen[:, :2] / STEP + nudges + PIXELS / 2, 0, PIXELS - 1).astype(np.int64)
        nearest = self.nearness[places[:, 1], places[:, 0]]
        lit: np.ndarray = nearest <= seen[:, 2]
        return lit.astype(np.float64)


def cast(solids: Sequence[Solid], direction: np.ndarray, middle: Matrix, blur: int) -> Shadow:
    """The shadow of some solids under a lamp.

    Args:
        solids: the toy, in the room.
        direction: from the toy to the lamp.
        middle: moves the toy's middle to the origin, to centre the lamp's picture on it.
        blur: how far the edge on the ground is smeared, in pixels of the lamp's picture.
    """
    view = lamp_view(direction) @ middle
    places = (np.arange(PIXELS) + 0.5 - PIXELS / 2) * STEP
    nearness = look(solids, view, places, places).nearness
    veil = np.isfinite(nearness).astype(np.float64)
    return Shadow(view, nearness, blurred(blurred(veil, blur).T, blur).T)


def blurred(values: Float64[np.ndarray, "rows columns"], reach: int) -> np.ndarray:
    """Average each column of values with weights that fall off over `reach` rows; zero outside."""
    weights = np.hanning(2 * reach + 3)[1:-1]
    padded = np.pad(values, ((reach, reach), (0, 0)))
    total = np.zeros_like(values)
    for offset, weight in enumerate(weights / weights.sum()):
        total += weight * padded[offset : offset + len(values)]
    return total
