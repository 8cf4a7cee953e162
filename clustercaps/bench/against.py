"""`clustercaps bench peers --against`: how much faster and smaller every system has become.

Against a commit, both versions run in processes of their own and take turns. A ratio is taken in
every round, from two turns that follow each other, so that a busy machine is busy for both; the
median of these ratios counts. Whether both compute the same is checked in float64 with equal
weights. Against a CSV file, the numbers before are those of another run, maybe on another machine.
"""

import csv
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clustercaps.bench.cases import Case, Options
from clustercaps.bench.csv_output import write_csv
from clustercaps.bench.peak_memory import can_measure, peak_extra_mb
from clustercaps.bench.versions import PACKAGE, Version, find_commit, running, unpacked
from clustercaps.utils.machine import machine
from clustercaps.utils.progress import StepBar
from clustercaps.utils.tables import text_table

TIMED = ("training step", "inference", "one image")
CPU, MEMORY = "training step, CPU", "peak memory"
DIFFERENCES = ("output", "gradient")
COLUMNS = (
    *("model", "in_chans", "image_side", "batch", "measure", "unit", "before", "after"),
    *("times_before", "times_before_low", "times_before_high", "rounds", "before_is"),
)
# Columns of a CSV of `bench peers`.
STORED = {
    "training step": "step_ms",
    "inference": "inference_ms",
    "one image": "one_image_ms",
    MEMORY: "peak_memory_mb",
}


@dataclass(frozen=True)
class Change:
    """One measure of one system, before and after.

    Args:
        case: The system.
        measure: What was measured.
        before: Milliseconds or megabytes, one for each round.
        after: The same, of the version that runs.
    """

    case: Case
    measure: str
    before: Sequence[float]
    after: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """How many times smaller it has become, in every round."""
        return [old / new for old, new in zip(self.before, self.after, strict=True)]

    @property
    def unit(self) -> str:
        """Of the numbers."""
        return (
            "relative" if self.measure in DIFFERENCES else "MB" if self.measure == MEMORY else "ms"
        )


def against_commit(cases: Sequence[Case], options: Options) -> None:
    """Measure every system as a commit and as the running version compute it."""
    assert options.against is not None
    commit = find_commit(options.against)
    changes: list[Change] = []
    with unpacked(commit) as folder, StepBar(len(cases) * (options.rounds * len(TIMED) + 2)) as bar:
        for case in cases:
            bar.say(case.name)
            changes += compare_versions(case, folder, options, bar)
    publish(changes, f"commit {commit[:12]}, in turns with this version", options.out)


def compare_versions(case: Case, folder: Path, options: Options, bar: StepBar) -> list[Change]:
    """One system: checked, timed in turns, memory measured."""
    threads = torch.get_num_threads()
    changes = []
    with running(folder, case, threads) as old, running(PACKAGE.parent, case, threads) as new:
        changes += differences(case, old, new)
        bar.step()
        for measure in TIMED:
            changes += take_turns(case, measure, old, new, options, bar)
    if can_measure():
        before, after = (
            peak_extra_mb(case, "auto", threads=threads, folder=where)
            for where in (folder, PACKAGE.parent)
        )
        changes.append(Change(case, MEMORY, [before], [after]))
    bar.step()
    return changes


def differences(case: Case, old: Version, new: Version) -> list[Change]:
    """How far output and gradients of the new version are from the old one's, relative."""
    with tempfile.TemporaryDirectory() as place:
        path = str(Path(place) / "old.pt")
        old.ask("save", path=path)
        found = new.ask("compare", path=path)
    return [
        Change(case, name, [], [] if found[name] is None else [found[name]]) for name in DIFFERENCES
    ]


def take_turns(
    case: Case, measure: str, old: Version, new: Version, options: Options, bar: StepBar
) -> list[Change]:
    """Wall time, and CPU time of a training step: old new, new old, old new ..."""
    seen: dict[Version, list[dict[str, float]]] = {old: [], new: []}
    for number in range(options.rounds):
        for version in (old, new) if number % 2 == 0 else (new, old):
            turn = version.ask(measure, seconds=options.seconds, warm_up=number == 0)
            seen[version].append(turn)
        bar.step()

    def change(name: str, clock: str) -> Change:
        before, after = ([1e3 * turn[clock] for turn in seen[version]] for version in (old, new))
        return Change(case, name, before, after)

    timed = change(measure, "wall")
    bar.note(f"{measure}: {show_ratio(timed)}")
    return [timed, change(CPU, "cpu")] if measure == "training step" else [timed]


def against_file(
    path: Path, stored: dict[str, dict[str, str]], now: Mapping[Case, dict[str, Any]], out: Path
) -> None:
    """Compare what was measured now with the rows of a file of `bench peers`.

    Args:
        path: The file.
        stored: Its rows, by the name of the system.
        now: What was measured of every system, by the columns of such a file.
        out: The CSV to write.
    """
    changes = [
        Change(case, measure, [float(stored[case.model][column])], [row[column]])
        for case, row in now.items()
        for measure, column in STORED.items()
        if stored[case.model][column] and row[column] is not None
    ]
    first = stored[next(iter(now)).model]
    label = f"another run, {path.name}: {first['machine']}; commit {first['commit']}"
    publish(changes, label, out)


def read_rows(path: Path, cases: Sequence[Case], out: Path) -> dict[str, dict[str, str]]:
    """The stored row of every system, which must be about the same images; `out` is another."""
    if path.resolve() == out.resolve():
        raise ValueError(f"--out would overwrite {path}, which --against compares with")
    with path.open(encoding="utf-8", newline="") as file:
        rows = {row.get("model", ""): row for row in csv.DictReader(file)}
    for case in cases:
        row = rows.get(case.model)
        if row is None or not set(STORED.values()) <= set(row):
            raise ValueError(
                f"{path} has no row of `bench peers` for {case.model}; --models leaves it out"
            )
        images = "x".join([row["batch"], row["in_chans"], row["image_side"], row["image_side"]])
        if images != case.input:
            raise ValueError(
                f"{path} measured {case.model} on images {images}, not {case.input}; --batch, "
                "--in-chans and --size choose them"
            )
    return rows


def publish(changes: Sequence[Change], label: str, out: Path) -> None:
    """Print a table of ratios and write the CSV."""
    told = machine()
    print(f"{told['machine']}; torch {told['torch']}; commit {told['commit']}")
    print(f"before: {label}")
    print("before / after: medians, more than 1 is faster, or smaller; quartiles in [ ]\n")
    rows = [[c.case.model, c.case.input, c.measure, *show_change(c)] for c in changes]
    print(text_table(["model", "images", "measure", "before", "after", "before / after"], rows))
    write_csv(out, COLUMNS, [csv_row(change, label) for change in changes], told)
    print(f"\n{out}")


def show_change(change: Change) -> tuple[str, str, str]:
    """Before, after and their ratio; for differences, how large they are."""
    if change.measure in DIFFERENCES:
        return "", "", f"differs by {change.after[0]:.0e}" if change.after else "other weights"
    old, new = (statistics.median(each) for each in (change.before, change.after))
    return f"{old:.4g} {change.unit}", f"{new:.4g} {change.unit}", show_ratio(change)


def show_ratio(change: Change) -> str:
    """The median ratio, and between which bounds half of them are."""
    low, middle, high = quartiles(change.ratios)
    return f"{middle:.2f}x" + (f" [{low:.2f}, {high:.2f}]" if len(change.ratios) > 1 else "")


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def csv_row(change: Change, label: str) -> list[object]:
    """A change in the order of `COLUMNS`."""
    case = change.case
    numbers: list[object] = [None] * 5
    if change.measure in DIFFERENCES:
        numbers[1] = change.after[0] if change.after else None
    else:
        low, middle, high = quartiles(change.ratios)
        medians = (statistics.median(each) for each in (change.before, change.after))
        numbers = [*medians, middle, low, high]
    return [
        *(case.model, case.in_chans, case.size, case.batch, change.measure, change.unit),
        *(*numbers, len(change.after), label),
    ]
