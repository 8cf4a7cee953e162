"""Shading: brightness of an object and of the ground in an image.

As for the original turntable, the lamps are fixed while the object turns, and a lighting is a set
of lamps that are on. Light is additive, so an image is computed once per lamp and summed per
lighting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, UInt8

from clustercaps.data.rendering.camera import SIDE, picture_slopes
from clustercaps.data.rendering.raycast import NOTHING, look
from clustercaps.data.rendering.shadows import Shadow, cast
from clustercaps.data.rendering.solids import Matrix, Solid, affine

SUPERSAMPLING = 2
FINE = SIDE * SUPERSAMPLING


def _towards(around: float, up: float) -> Float64[np.ndarray, "3"]:
    """Direction of a lamp: degrees to the right of the cameras, degrees above the ground."""
    a, u = np.radians(around), np.radians(up)
    return np.array([np.cos(u) * np.cos(a), np.cos(u) * np.sin(a), np.sin(u)])


LAMPS = (
    _towards(-55.0, 50.0),
    _towards(50.0, 42.0),
    _towards(-140.0, 48.0),
    _towards(125.0, 58.0),
)
# Which lamps are on, by lighting code.
LIGHTINGS = ((0,), (1,), (0, 1), (2, 3), (0, 3), (0, 1, 2, 3))
# Ambient light comes from above; its shadow grounds the object.
SKY = _towards(0.0, 89.0)
EDGE_BLUR, SKY_BLUR = 3, 12

AMBIENT, BOUNCE = 0.27, 0.15
GROUND = 0.62
GLOSS, SHINE = 0.10, 5
GRAIN = 1.2


@dataclass(frozen=True)
class Painted:
    """An object with its paint.

    Args:
        solids: its solids in the scene, rotated for the image.
        paint: fraction of the light that it reflects, 0 to 1.
        aim: height of its centre.
    """

    solids: Sequence[Solid]
    paint: float
    aim: float


def shadows(toy: Painted) -> list[Shadow]:
    """Shadows of an object in ambient light and for each lamp, in this order."""
    middle = affine(np.eye(3), (0.0, 0.0, -toy.aim))
    veils = [cast(toy.solids, SKY, middle, SKY_BLUR)]
    return veils + [cast(toy.solids, lamp, middle, EDGE_BLUR) for lamp in LAMPS]


def photograph(
    toy: Painted, fallen: Sequence[Shadow], view: Matrix
) -> Float64[np.ndarray, "lights side side"]:
    """Brightness of an image in ambient light and for each lamp, before exposure.

    Args:
        toy: the object.
        fallen: its `shadows`.
        view: view of the camera.
    """
    slopes = picture_slopes(FINE)
    seen = look(toy.solids, view, slopes, slopes)
    rows, columns = np.nonzero(seen.surface != NOTHING)
    surface = seen.surface[rows, columns]
    back = np.linalg.inv(view)
    near = seen.nearness[rows, columns]
    flat = np.stack([slopes[columns], slopes[rows], near, np.ones_like(near)], axis=1)
    points = flat @ back.T
    points /= points[:, 3:]
    normals = np.einsum("nij,nj->ni", seen.gradients[surface], points)
    _shorten(normals)
    eye = back[:3, 2] / back[3, 2]
    # Each subpixel samples another part of the lamp.
    nudges = np.stack([columns % 2 * 2.0 - 1, rows % 2 * 2.0 - 1], axis=1)
    light = _on_toy(points, normals, eye, toy.paint, fallen, nudges)

    pixel = rows // SUPERSAMPLING * SIDE + columns // SUPERSAMPLING
    share = 1 / SUPERSAMPLING**2
    covered = np.bincount(pixel, minlength=SIDE * SIDE) * share
    sums = [np.bincount(pixel, weights=part, minlength=SIDE * SIDE) * share for part in light]
    pictures: np.ndarray = np.stack(sums) + (1 - covered) * _on_ground(back, fallen)
    return pictures.reshape(-1, SIDE, SIDE)


def _on_toy(
    points: Float[np.ndarray, "points 4"],
    normals: Float[np.ndarray, "points 3"],
    eye: np.ndarray,
    paint: float,
    fallen: Sequence[Shadow],
    nudges: np.ndarray,
) -> list[np.ndarray]:
    """Light from surface points towards the camera, for each light."""
    towards_eye = eye - points[:, :3]
    _shorten(towards_eye)
    # Low, downward faces see the ground, which is in the shade of the object.
    open_sky = 0.5 + 0.5 * normals[:, 2]
    height = np.clip(points[:, 2], 0, 1)
    light = [paint * (AMBIENT * open_sky + BOUNCE * (1 - open_sky) * (0.4 + 0.6 * height))]
    for lamp, shadow in zip(LAMPS, fallen[1:], strict=True):
        facing = normals @ lamp
        lit = shadow.on_toy(points, normals, nudges) * (facing > 0)
        halfway = towards_eye + lamp
        glint = np.maximum(_dot(normals, halfway) / np.sqrt(_dot(halfway, halfway)), 0)
        for _ in range(SHINE):
            glint *= glint
        light.append(lit * (paint * facing + GLOSS * glint))
    return light


def _dot(
    first: Float64[np.ndarray, "points 3"], second: Float64[np.ndarray, "points 3"]
) -> Float64[np.ndarray, "points"]:
    # Much faster than a sum over the short axis.
    product: np.ndarray = np.einsum("ni,ni->n", first, second)
    return product


def _shorten(vectors: Float64[np.ndarray, "points 3"]) -> None:
    """Normalise every vector to length 1, in place."""
    vectors /= np.sqrt(_dot(vectors, vectors))[:, None]


def _on_ground(back: Matrix, fallen: Sequence[Shadow]) -> Float64[np.ndarray, "lights pixels"]:
    """Light from the ground at each pixel, as if no object were in front of it."""
    slopes = picture_slopes(SIDE)
    x, y = np.meshgrid(slopes, slopes)
    flat = np.stack([x.ravel(), y.ravel(), np.zeros(x.size), np.ones(x.size)], axis=1)
    far, eye = flat @ back.T, back[:, 2]
    # The nearness at which the height of a pixel's point is zero.
    points = far - far[:, 2:3] / eye[2] * eye
    points /= points[:, 3:]
    light = [GROUND * AMBIENT * (1 - 0.75 * fallen[0].on_ground(points))]
    for lamp, shadow in zip(LAMPS, fallen[1:], strict=True):
        # A lamp is brighter on its own side of the table.
        falloff = 1 + 0.14 * np.clip(points[:, :3] @ lamp, -2, 2)
        light.append(GROUND * lamp[2] * falloff * (1 - shadow.on_ground(points)))
    return np.stack(light)


def develop(
    pictures: Float64[np.ndarray, "lights side side"],
    lightings: Sequence[int],
    grain: tuple[int, ...],
) -> UInt8[np.ndarray, "lightings side side"]:
    """Combine the lamps, expose, convert light to grey levels and add noise.

    Args:
        pictures: images in ambient light and for each lamp.
        lightings: codes of the lightings.
        grain: seed of the noise, together with the code of the lighting.
    """
    film = np.empty((len(lightings), *pictures.shape[1:]), dtype=np.float32)
    for number, code in enumerate(lightings):
        lamps = [1 + lamp for lamp in LIGHTINGS[code]]
        # The camera adapts partially: more lamps still give a brighter image.
        exposure = 2.2 / len(lamps) ** 0.75
        film[number] = exposure * (pictures[0] + pictures[lamps].sum(0))
    grey = 255 * (1 - np.exp(-film)) ** np.float32(1 / 1.6)
    for picture, code in zip(grey, lightings, strict=True):
        noise = np.random.default_rng((*grain, code))
        picture += GRAIN * noise.standard_normal(picture.shape, dtype=np.float32)
    return np.clip(np.rint(grey), 0, 255).astype(np.uint8)
