"""Numbers that pages state as measured, and whether a file in results/ has them.

The convention is in CONTRIBUTING.md, "Numbers in the docs".
"""

import csv
import json
import math
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

# Unit -> names of the columns (or of the path of keys, in JSON) that can hold such a number.
UNITS = {
    "%": r"error|accuracy|top[15]|fraction|percent|familiar|novel|ablation|\bsd\b",
    "x": r"times",
    "s": r"seconds",
    "ms": r"_ms\b|value ms",
    "": r"",
}
SAME = {"seconds": "s", "min": "s", "minutes": "s", "hours": "s", "h": "s", "days": "s"}
SCALE = {"min": 60, "minutes": 60, "hours": 3600, "h": 3600, "days": 86400}
NUMBER = r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)"
WITH_UNIT = re.compile(
    NUMBER + r"\*{0,2} ?(?:(%)|(x)(?!\w)|(ms|seconds|s|minutes|min|hours|h|days)\b)"
)
DECIMAL = re.compile(r"(?<![\w.])(\d[\d,]*\.\d+)(?![\w.])")
INTEGER = re.compile(r"\d[\d,]*")

Known = list[tuple[str, float]]


def known_numbers(results: Path, paper: Path) -> Known:
    """Every number of the results and of the paper, with the name of its column."""
    found = list(leaves("", json.loads(paper.read_text())))
    for path in sorted(results.glob("*.json")):
        found += leaves("", json.loads(path.read_text()))
    for path in sorted(results.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            found += leaves("", json.loads(line))
    for path in sorted(results.glob("*.csv")):
        with path.open(newline="") as file:
            found += from_csv(list(csv.DictReader(file)))
    return [
        each
        for name, value in found
        for each in ((name, value), *([(name, 100 * value)] if "fraction" in name else []))
    ]


def leaves(name: str, value: object) -> Iterator[tuple[str, float]]:
    """The numbers in nested JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(f"{name} {key}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(name, inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)


def from_csv(rows: list[dict[str, str]]) -> Iterator[tuple[str, float]]:
    """The numbers of a table; with seeds, also mean and sd of each cell, and total seconds."""
    columns: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for name, text in row.items():
            value = to_float(text)
            if value is not None:
                unit = f" {row['unit']}" if name == "value" and "unit" in row else ""
                columns.setdefault((name + unit, row.get("cell", "")), []).append(value)
    for (name, _), values in columns.items():
        yield from ((name, value) for value in values)
        if rows and "seed" in rows[0] and len(values) > 1:
            yield name, statistics.mean(values)
            yield f"sd {name}", statistics.stdev(values)
    if rows and "familiar_curve" in rows[0]:
        yield from from_curves(rows)
    for name in {name for name, _ in columns if "seconds" in name}:
        yield name, sum(sum(v) for (other, _), v in columns.items() if other == name)


def from_curves(rows: list[dict[str, str]]) -> Iterator[tuple[str, float]]:
    """Mean and sd of a cell where its runs first reach the best of some run, or the paper's."""

    def curve(text: str) -> list[float]:
        return [float(part) for part in text.split()]

    curves = [(r["cell"], curve(r["familiar_curve"]), curve(r["novel_curve"])) for r in rows]
    for level in {*(max(familiar) for _, familiar, _ in curves), 96.3, 95.7}:
        for cell in {cell for cell, _, _ in curves}:
            runs = [(familiar, novel) for name, familiar, novel in curves if name == cell]
            if any(max(familiar) < level for familiar, _ in runs):
                continue
            first = [[value >= level for value in familiar].index(True) for familiar, _ in runs]
            for part, name in enumerate(("familiar", "novel")):
                values = [run[part][place] for run, place in zip(runs, first, strict=True)]
                yield name, statistics.mean(values)
                if len(values) > 1:
                    yield f"sd {name}", statistics.stdev(values)


def to_float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    # A hash such as 12e456789012 reads as infinity.
    return value if math.isfinite(value) else None


def stated_numbers(text: str, everywhere: bool) -> Iterator[tuple[str, str, float]]:
    """Number, unit and its scale, of what a page states as measured.

    Args:
        text: The page.
        everywhere: The whole page is about results; else only sections with "Results" in their
            heading are searched for numbers without a unit.
    """
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    header: list[str] | None = None
    about_results = everywhere
    for line in text.splitlines():
        if line.startswith("#"):
            about_results = everywhere or "results" in line.lower()
        cells = line.strip().strip("|").split("|") if line.startswith("|") else None
        if cells is not None and header is None:
            header = cells
            continue
        if cells is None:
            header = None
        for match in WITH_UNIT.finditer(line):
            number, *units = match.groups()
            unit = next(u for u in units if u)
            yield number, SAME.get(unit, unit), SCALE.get(unit, 1)
        if cells is None or header is None or not about_results:
            continue
        for name, cell in zip(header, cells, strict=True):
            unit = "%" if "%" in name else ""
            for number in DECIMAL.findall(WITH_UNIT.sub("", cell)):
                yield number, unit, 1
            if unit and INTEGER.fullmatch(cell.strip()):
                yield cell.strip(), unit, 1


def is_known(number: str, unit: str, scale: float, known: Known) -> bool:
    """Whether a stated number is one of the known ones, rounded to its digits."""
    plain = number.replace(",", "")
    step = scale * 10 ** -len(plain.partition(".")[2])
    return any(
        abs(value - scale * float(plain)) <= 0.5001 * step
        for name, value in known
        if re.search(UNITS[unit], name)
    )
