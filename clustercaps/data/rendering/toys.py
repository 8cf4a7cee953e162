"""Build an object from its category and instance number."""

from dataclasses import dataclass

import numpy as np

from clustercaps.data.rendering.creatures import animal, human
from clustercaps.data.rendering.dice import Dice
from clustercaps.data.rendering.solids import Solid, affine, turn
from clustercaps.data.rendering.vehicles import car, plane, truck

# In the order of the class indices.
BUILDERS = (animal, human, plane, truck, car)


@dataclass(frozen=True)
class Toy:
    """One object on the turntable, with its front towards positive x.

    Args:
        solids: its parts, within a distance of 1 of the point that the cameras look at.
        paint: fraction of the light that it reflects, the same for the whole object.
        middle: height of its centre, at which the cameras look.
    """

    solids: tuple[Solid, ...]
    paint: float
    middle: float

    def turned(self, azimuth: float) -> list[Solid]:
        """Its parts seen from an azimuth in degrees, 0 at its front."""
        motion = affine(turn("z", -azimuth))
        return [solid.moved(motion) for solid in self.solids]


def make_toy(category: int, instance: int, seed: int = 0) -> Toy:
    """Build an object; the same numbers always give the same one.

    Args:
        category: class index.
        instance: number within the category.
        seed: seed of the dataset.
    """
    dice = Dice(seed, category, instance)
    paint = dice.between(0.2, 0.45)
    # Objects vary in size and are slightly off the axis.
    size = dice.between(0.72, 0.94)
    spot = 0.06 * np.array([dice.between(-1.0, 1.0), dice.between(-1.0, 1.0), 0.0])
    solids = BUILDERS[category](dice)
    tips = np.concatenate([solid.tips for solid in solids])
    low, high = tips.min(0), tips.max(0)
    centre = (low + high) / 2
    radius = float(np.linalg.norm(tips - centre, axis=1).max())
    scale = size / radius
    foot = np.array([centre[0], centre[1], low[2]])
    motion = affine(np.eye(3) * scale, spot - foot * scale)
    height = float(high[2] - low[2]) * scale
    return Toy(tuple(solid.moved(motion) for solid in solids), paint, height / 2)
