"""Experiments: cells that are measured once per seed, and a table and figure of the results."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustercaps.utils.json_files import json_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clustercaps.experiments.harness.findings import Finding

# Seeds of experiments that repeat cells in the full budget only.
ONE_SEED = {"smoke": (0,), "quick": (0,), "night": (0,), "full": (0, 1, 2)}

# A row of the results: the columns of one cell and one seed.
Row = dict[str, Any]


@dataclass(frozen=True)
class Workspace:
    """Where a measurement may write, and what it can use.

    Args:
        folder: Folder of this cell and seed; keeps the files of an interrupted measurement.
        data_dir: Folder with the official files of the dataset, if not the cache.
        workers: Data loading processes for streamed images.
        fresh: Start over, whatever is in the folder.
    """

    folder: Path
    data_dir: str | None = None
    workers: int = 2
    fresh: bool = False


@dataclass(frozen=True)
class Cell:
    """One training run or measurement of an experiment, repeated for each seed.

    Args:
        id: Permanent name, such as "m1/cifar10".
        settings: Everything that determines the result except the seed; JSON-serialisable.
        measure: Maps seed and workspace to the columns of the row.
        data: The required dataset, if any.
        defaults: Values of settings that are missing from older results.
        seeded: Whether the seed affects the result; if not, only seed 0 is measured.
        seeds: Seeds of this cell, if not those of the budget.
        same_as: Experiment and cell with the same training run. It is trained once for both, and
            what is stored there is taken over if it was measured in the same way.
    """

    id: str
    settings: Mapping[str, Any]
    measure: Callable[[int, Workspace], Row]
    data: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    seeded: bool = True
    seeds: tuple[int, ...] | None = None
    same_as: tuple[str, str] | None = None

    @cached_property
    def hash(self) -> str:
        """Twelve hex digits that identify the settings."""
        return settings_hash(self.settings)

    def changes(self, stored: Mapping[str, Any]) -> list[str]:
        """Descriptions of how the settings of a stored result differ from this cell's."""
        before = {**self.defaults, **stored}
        return [
            f"{name} was {before.get(name)!r}, now {self.settings.get(name)!r}"
            for name in sorted({*before, *self.settings})
            if before.get(name) != self.settings.get(name)
        ]


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Twelve hex digits that identify the settings, regardless of their order."""
    return hashlib.sha256(json_text(settings, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Args:
        title: Heading of its section.
        cells: Maps the name of a budget to the cells to measure.
        table: The results of a budget as Markdown, with the paper's numbers next to ours.
        figure: The same as a figure.
        has_figure: Whether the results contain something to draw.
        finding: Whether the results agree with the paper's claim.
        notes: Where we differ from the paper, and why; Markdown.
        seeds: Seeds of every budget.
    """

    title: str
    cells: Callable[[str], list[Cell]]
    table: Callable[[Sequence[Row], str], str]
    figure: Callable[[Sequence[Row], str], "Figure"]
    notes: str
    has_figure: Callable[[Sequence[Row]], bool] = lambda _: True
    finding: Callable[[Sequence[Row]], "Finding | None"] = lambda _: None
    seeds: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: {
            "smoke": (0,),
            "quick": (0, 1, 2),
            "night": (0, 1, 2),
            "full": (0, 1, 2),
        }
    )

    def seeds_of(self, cell: Cell, budget: str) -> tuple[int, ...]:
        """The seeds that a cell is measured with."""
        return (cell.seeds or self.seeds[budget]) if cell.seeded else (0,)

    def wanted(self, budget: str) -> set[tuple[str, int]]:
        """The cells and seeds that make the results of a budget complete."""
        return {
            (cell.id, seed) for cell in self.cells(budget) for seed in self.seeds_of(cell, budget)
        }
