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

from clustercaps.experiments.harness.cells import Cell, Row, settings_hash
from clustercaps.utils.files import take_lock, write_atomically
from clustercaps.utils.paths import check_input

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
    """The rows of a CSV with numbers parsed; empty if the file does not exist.

    A damaged file is refused: rows of another length, cells and seeds that are there twice,
    settings that are not those of their hash, text in a column of numbers.
    """
    check_input(path)
    if not path.exists():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            missing = {*FIRST, *LAST} - {*(reader.fieldnames or ())}
            if missing:
                raise ValueError(
                    f"it was not written by `clustercaps reproduce`: it has no column "
                    f"{', '.join(sorted(missing))}"
                )
            rows = [_row(row, reader.line_num) for row in reader]
        _refuse_damage(rows)
    except (ValueError, csv.Error, RecursionError) as error:
        raise ValueError(f"{path} cannot be used: {error}; move it, or restore it") from error
    return rows


def _row(row: dict[str | Any, str | Any], line: int) -> Row:
    # The reader puts surplus cells under None, and None into missing ones.
    if None in row or None in row.values():
        raise ValueError(f"line {line} has another number of columns than the header")
    parsed = {name: text if name in TEXT else plain(text) for name, text in row.items() if text}
    settings = json.loads(row["settings"])
    if not isinstance(settings, dict) or settings_hash(settings) != row["settings_hash"]:
        raise ValueError(f"the settings in line {line} are not those of their hash")
    if not row["cell"] or not isinstance(parsed.get("seed"), int):
        raise ValueError(f"line {line} has no cell and seed")
    return parsed


def _refuse_damage(rows: Sequence[Row]) -> None:
    if len({key(row) for row in rows}) < len(rows):
        raise ValueError("a cell and seed are there twice")
    for name in dict.fromkeys(name for row in rows for name in row if name not in TEXT):
        values = [row[name] for row in rows if name in row]
        texts = [value for value in values if isinstance(value, str)]
        if texts and len(texts) < len(values):
            raise ValueError(f"column {name} has numbers, and {texts[0][:40]!r}")


def plain(text: str) -> Any:
    """The text as a number if it is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
