"""A toy by category and number: built, painted, brought to one size, put in the middle."""

from dataclasses import dataclass

import numpy as np

from clustercaps.data.rendering.creatures import animal, human
from clustercaps.data.rendering.dice import Dice
from clustercaps.data.rendering.solids import Solid, affine, turn
from clustercaps.data.rendering.vehicles import car, plane, truck

# In the order of the class numbers.
BUILDERS = (animal, human, plane, truck, car)


@dataclass(frozen=True)
class Toy:
    """One toy, standing in the middle of the turntable with its front towards positive x.

    Args:
        solids: its parts; all of it lies within 1 of its middle.
        paint: part of the light that it gives back; one paint for the whole toy.
        middle: height of its middle.
    """

    solids: tuple[Solid, ...]
    paint: float
    middle: float

    def turned(self, azimuth: float) -> list[Solid]:
        """Its parts when the cameras stand at an azimuth: degrees around it, 0 at its front."""
        motion = affine(turn("z", -azimuth))
        return [solid.moved(motion) for solid in self.solids]


def make_toy(category: int, instance: int, seed: int = 0) -> Toy:
    """Build a toy; the same numbers always give the same one.

    Args:
        category: class number.
        instance: number within the category.
        seed: of the whole set.
    """
    dice = Dice(seed, category, instance)
    paint = dice.between(0.22, 0.42)
    solids = BUILDERS[category](dice)
    tips = np.concatenate([solid.tips for solid in solids])
    low, high = tips.min(0), tips.max(0)
    centre = (low + high) / 2
    radius = float(np.linalg.norm(tips - centre, axis=1).max())
    # Down to the ground, and the farthest point 1 from the middle.
    foot = np.array([centre[0], centre[1], low[2]])
    motion = affine(np.eye(3) / radius, -foot / radius)
    height = float(high[2] - low[2]) / radius
    return Toy(tuple(solid.moved(motion) for solid in solids), paint, height / 2)
