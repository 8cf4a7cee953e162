"""What an experiment is: cells that are measured once per seed, a table and a figure of them."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clustercaps.experiments.harness.findings import Finding

# A line of the results: the columns of one cell and one seed.
Row = dict[str, Any]


@dataclass(frozen=True)
class Workspace:
    """Where a measurement may write, and what it has to work with.

    Args:
        folder: Of this cell and seed; what an interrupted measurement left is still there.
        data_dir: Folder with the official files of the data, if not the cache.
        workers: Processes that read streamed images.
        fresh: Start anew, whatever is in the folder.
    """

    folder: Path
    data_dir: str | None = None
    workers: int = 2
    fresh: bool = False


@dataclass(frozen=True)
class Cell:
    """One training or measurement of an experiment, repeated for each seed.

    Args:
        id: Its name, which never changes, such as "m1/cifar10".
        settings: All that decides the outcome but the seed, as JSON would hold it.
        measure: Seed and workspace to the columns of its row.
        data: The image set that it needs, if any.
        defaults: What settings mean that an older result does not know.
        seeded: Whether the seed changes the outcome; if not, only seed 0 is measured.
        seeds: Of this cell alone, where it gets fewer or more than the budget's.
    """

    id: str
    settings: Mapping[str, Any]
    measure: Callable[[int, Workspace], Row]
    data: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    seeded: bool = True
    seeds: tuple[int, ...] | None = None

    @cached_property
    def hash(self) -> str:
        """Twelve digits that change with any setting."""
        return settings_hash(self.settings)

    def changes(self, stored: Mapping[str, Any]) -> list[str]:
        """How settings of an earlier result differ from this cell's, in words."""
        before = {**self.defaults, **stored}
        return [
            f"{name} was {before.get(name)!r}, now {self.settings.get(name)!r}"
            for name in sorted({*before, *self.settings})
            if before.get(name) != self.settings.get(name)
        ]


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Twelve digits that change with any setting, and not with their order."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Args:
        title: A heading.
        cells: What is measured, for a budget's name.
        table: The results of a budget as Markdown, the paper's numbers beside ours.
        figure: The same as a figure.
        finding: Whether the results agree with what the paper says.
        notes: Where we differ from the paper, and why; Markdown.
        seeds: Of every budget.
    """

    title: str
    cells: Callable[[str], list[Cell]]
    table: Callable[[Sequence[Row], str], str]
    figure: Callable[[Sequence[Row], str], "Figure"]
    notes: str
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
