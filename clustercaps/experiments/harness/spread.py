"""Statistics over seeds: mean and standard deviation of each cell."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from clustercaps.experiments.harness.cells import Row

# Datasets, as usually written.
NAMES = {
    "smallnorb": "smallNORB",
    "rendered-norb": "rendered objects (not smallNORB)",
    "rendered-norb-25": "more rendered objects (not smallNORB)",
    "fashion-mnist": "Fashion-MNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
}


@dataclass(frozen=True)
class Spread:
    """A column of one cell over its seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return statistics.mean(self.values)

    @property
    def sd(self) -> float | None:
        """Standard deviation over the seeds (n - 1); None for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.sd is None else f" +- {self.sd:.2f}")


def spreads(rows: Sequence[Row], column: str = "test_error") -> dict[str, Spread]:
    """A column of every cell over its seeds."""
    found: dict[str, tuple[float, ...]] = {}
    for row in rows:
        found[row["cell"]] = (*found.get(row["cell"], ()), float(row[column]))
    return {id: Spread(values) for id, values in found.items()}


def set_title(row: Row) -> str:
    """The dataset of a row as usually written, and its number of training images."""
    return f"{NAMES[row['data'].removesuffix('-mini')]}, {row['train_images']:,} images"


def first_rows(rows: Sequence[Row]) -> dict[str, Row]:
    """One row per cell, for values that do not depend on the seed."""
    return {row["cell"]: row for row in reversed(rows)}
