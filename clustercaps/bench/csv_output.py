"""A CSV of measurements with the conditions in every row."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clustercaps.utils.files import write_atomically


def write_csv(
    out: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]], told: Mapping[str, Any]
) -> None:
    """Write rows, each followed by machine, versions and commit, atomically."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, *told])
    for row in rows:
        assert len(row) == len(columns), "a value for every column"
        writer.writerow([*map(plain, row), *told.values()])
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.getvalue())


def plain(value: Any) -> Any:
    """Numbers with five significant digits; empty if not measured."""
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else value
