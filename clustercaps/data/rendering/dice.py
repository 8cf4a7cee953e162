"""Random choices for building objects."""

from typing import TypeVar

import numpy as np

Choice = TypeVar("Choice")


class Dice:
    """Random numbers for one object.

    Args:
        key: seed, followed by the numbers that identify the object.
    """

    def __init__(self, *key: int) -> None:
        self._random = np.random.default_rng(key)

    @property
    def level(self) -> float:
        """A random number between 0 and 1."""
        return float(self._random.random())

    def between(self, low: float, high: float) -> float:
        """A random number between `low` and `high`."""
        return low + (high - low) * self.level

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.level < probability

    def choose(self, *options: Choice) -> Choice:
        """One of the options, all equally likely."""
        return options[int(self.level * len(options))]
