"""All images of an object at one position of the turntable."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from clustercaps.data.rendering.camera import AZIMUTHS, ELEVATIONS, SIDE, camera
from clustercaps.data.rendering.shading import Painted, develop, photograph, shadows
from clustercaps.data.rendering.toys import make_toy

CAMERAS = 2


def stereo_pairs(
    category: int,
    instance: int,
    azimuth: int,
    elevations: Sequence[int],
    lightings: Sequence[int],
    seed: int = 0,
) -> UInt8[np.ndarray, "elevations lightings 2 side side"]:
    """Render an object from one azimuth, for several elevations and lightings.

    Args:
        category: class index.
        instance: number of the object within its category.
        azimuth: step of the turntable, 0 to 17, of 20 degrees each.
        elevations: codes, 0 to 8: 30 degrees and steps of 5.
        lightings: codes, 0 to 5.
        seed: seed of the dataset.
    """
    toy = make_toy(category, instance, seed)
    painted = Painted(toy.turned(AZIMUTHS[azimuth]), toy.paint, toy.middle)
    fallen = shadows(painted)
    pairs = np.empty((len(elevations), len(lightings), CAMERAS, SIDE, SIDE), dtype=np.uint8)
    for row, elevation in enumerate(elevations):
        for side in range(CAMERAS):
            # The noise of an image depends only on which image it is.
            grain = (seed, category, instance, azimuth, elevation, side)
            view = camera(ELEVATIONS[elevation], side, toy.middle)
            pairs[row, :, side] = develop(photograph(painted, fallen, view), lightings, grain)
    return pairs
