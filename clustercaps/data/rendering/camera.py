"""Views of the cameras and of the lamps.

A view is a 4x4 matrix that maps a homogeneous point of the scene to (x, y, nearness, 1) up to a
positive factor: x to the right and y down in the image, and the larger the nearness, the closer the
point. For cameras the nearness is 1 / depth and the map is projective; for lamps, which are far
away, it is minus the depth and the map is affine. Either way a ray is a line along which only the
nearness changes, so one ray caster works for both.

The scene: the object stands in the centre, on z = 0; the cameras are on the side of positive x.
"""

import numpy as np
from jaxtyping import Float64

from clustercaps.data.rendering.solids import Matrix

# Degrees, by the codes of smallNORB: elevation code 0 to 8, half of azimuth code 0, 2, ..., 34.
ELEVATIONS = tuple(float(degrees) for degrees in range(30, 75, 5))
AZIMUTHS = tuple(float(degrees) for degrees in range(0, 360, 20))
SIDE = 96
# Objects lie within a radius of 1. At this distance and focal length that is 80 pixels wide; most
# objects fit into the central 64 pixels, which the networks see.
DISTANCE = 7.0
FOCAL = 275.0
# Half of the angle between the two cameras as seen from the object, in degrees.
HALF_STEREO = 4.0


def camera(elevation: float, side: int, aim: float) -> Matrix:
    """View of one camera.

    Args:
        elevation: degrees above the ground.
        side: 0 for the left camera, 1 for the right one.
        aim: height of the point both cameras look at.
    """
    up, around = np.radians(elevation), np.radians(HALF_STEREO * (2 * side - 1))
    away = np.array([np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)])
    return _perspective(np.array([0.0, 0.0, aim]) + DISTANCE * away, -away)


def _perspective(position: np.ndarray, forward: np.ndarray) -> Matrix:
    x, y, z = _room_to_view(position, forward)
    # Divided by the depth z: image x, image y, 1 / depth, 1.
    return np.stack([x, y, np.array([0.0, 0.0, 0.0, 1.0]), z])


def lamp_view(direction: np.ndarray) -> Matrix:
    """View from a lamp in a direction, without perspective."""
    x, y, z = _room_to_view(np.zeros(3), -direction)
    return np.stack([x, y, -z, np.array([0.0, 0.0, 0.0, 1.0])])


def _room_to_view(position: np.ndarray, forward: np.ndarray) -> Float64[np.ndarray, "3 4"]:
    """Rows that give right, down and depth of a homogeneous point."""
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(forward, right), forward])
    return np.concatenate([axes, -(axes @ position)[:, None]], axis=1)


def picture_slopes(pixels: int) -> Float64[np.ndarray, "pixels"]:
    """Image coordinate at the centre of each row or column, for an image of `pixels` pixels."""
    return (np.arange(pixels) + 0.5 - pixels / 2) * (SIDE / pixels / FOCAL)
