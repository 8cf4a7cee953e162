"""How time grows with size: a power of the size, and a straight line."""

import math
import statistics
from collections.abc import Sequence

Numbers = Sequence[int] | Sequence[float]


def exponent(sizes: Numbers, times: Numbers) -> float:
    """The slope of log time against log size, by least squares."""
    return statistics.linear_regression(*map(logarithms, (sizes, times))).slope


def power_law(sizes: Numbers, times: Numbers, size: int | float) -> float:
    """The time of another size, by the same fit."""
    slope, level = statistics.linear_regression(*map(logarithms, (sizes, times)))
    return math.exp(level) * size**slope


def logarithms(values: Numbers) -> list[float]:
    """Natural logarithms."""
    return [math.log(value) for value in values]


def straight_line(sizes: Numbers, times: Numbers) -> tuple[float, float, float]:
    """Fixed part and slope of time = fixed + slope * size by least squares, and r squared."""
    slope, fixed = statistics.linear_regression(sizes, times)
    return fixed, slope, statistics.correlation(sizes, times) ** 2
