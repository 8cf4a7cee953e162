"""The results of an experiment: a CSV with one row per cell and seed, which never mixes settings.

Several processes may add rows at the same time; each holds a lock while it reads and writes.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clustercaps.experiments.harness.cells import Cell, Row
from clustercaps.utils.files import take_lock, write_atomically

FIRST = ("cell", "seed")
CONDITIONS = ("machine", "accelerator", "python", "torch", "clustercaps", "commit")
LAST = (*CONDITIONS, "settings_hash", "settings")
# Never parsed as numbers: a commit may look like one.
TEXT = ("cell", "model", "data", *LAST)


class Store:
    """The rows of one experiment and budget.

    Args:
        path: Path of the CSV.
        cells: The current cells of the experiment, in the order of the file.
    """

    def __init__(self, path: Path, cells: Sequence[Cell]) -> None:
        self.path = path
        self._cells = {cell.id: cell for cell in cells}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from changing the results while active."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with take_lock(self.path.with_name(f".{self.path.stem}.lock")):
            yield

    def rows(self) -> list[Row]:
        """All results; raises an error if their settings differ from the current ones."""
        rows = read_rows(self.path)
        for row in rows:
            self._refuse_other_settings(row)
        return rows

    def add(self, row: Row) -> None:
        """Store a result, replacing an earlier one of the same cell and seed."""
        with self.locked():
            others = [r for r in self.rows() if key(r) != key(row)]
            self._write([*others, row])

    def forget(self, keys: set[tuple[str, int]]) -> None:
        """Delete results, whatever their settings."""
        with self.locked():
            if self.path.exists():
                self._write([row for row in read_rows(self.path) if key(row) not in keys])

    def _write(self, rows: Sequence[Row]) -> None:
        order = list(self._cells)
        place = {id: order.index(id) if id in order else len(order) for id, _ in map(key, rows)}
        rows = sorted(rows, key=lambda row: (place[row["cell"]], row["seed"]))
        measured = dict.fromkeys(name for row in rows for name in row)
        columns = [*FIRST, *(n for n in measured if n not in (*FIRST, *LAST)), *LAST]
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.path, text.getvalue())

    def _refuse_other_settings(self, row: Row) -> None:
        way_out = "move the file, pass another --out, or measure again with --fresh"
        cell = self._cells.get(row["cell"])
        if cell is None:
            raise ValueError(
                f"{self.path} contains the cell {row['cell']!r}, which this version does not have; "
                f"known: {', '.join(self._cells)}; {way_out}"
            )
        changes = cell.changes(json.loads(row["settings"]))
        # New settings at their default values are no change.
        if changes:
            raise ValueError(
                f"{self.path} contains {cell.id}, seed {row['seed']}, with other settings: "
                f"{'; '.join(changes)}; {way_out}"
            )


def key(row: Row) -> tuple[str, int]:
    """Cell and seed of a row."""
    return row["cell"], row["seed"]


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV with numbers parsed; empty if the file does not exist."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = {*FIRST, *LAST} - {*(reader.fieldnames or ())}
        if missing:
            raise ValueError(
                f"{path} was not written by `clustercaps reproduce`: it has no column "
                f"{', '.join(sorted(missing))}; move it"
            )
        return [
            {name: text if name in TEXT else plain(text) for name, text in row.items() if text}
            for row in reader
        ]


def plain(text: str) -> Any:
    """The text as a number if it is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
