"""Chance for building toys, in words."""

from typing import TypeVar

import numpy as np

Choice = TypeVar("Choice")


class Dice:
    """Draws the proportions of one toy.

    Args:
        key: numbers that decide every draw: the seed, then whatever tells toys apart.
    """

    def __init__(self, *key: int) -> None:
        self._random = np.random.default_rng(key)

    @property
    def level(self) -> float:
        """A number between 0 and 1."""
        return float(self._random.random())

    def between(self, low: float, high: float) -> float:
        """A number between two others."""
        return low + (high - low) * self.level

    def chance(self, probability: float) -> bool:
        """Whether something happens that has this probability."""
        return self.level < probability

    def choose(self, *options: Choice) -> Choice:
        """One of the options, all alike."""
        return options[int(self.level * len(options))]
