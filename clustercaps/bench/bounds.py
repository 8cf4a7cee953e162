"""`clustercaps bench bounds`: the fused kernel's time by layer and pass, against lower bounds.

A bound is the time that this machine needs at full speed for the same arithmetic, or for the same
bytes if that is more (`limits`). Only the time inside the kernel counts, during training steps. On
one thread it is CPU time, which other programs hardly disturb, and on several it is wall time.
"""

import csv
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from clustercaps.bench.cases import Case, Options, Workload, build, capsule_layers, require_kernel
from clustercaps.bench.check import check
from clustercaps.bench.csv_output import write_csv
from clustercaps.bench.limits import PASSES, Speeds, limits, measure_speeds, work_of
from clustercaps.kernels.library import kernel_seconds
from clustercaps.utils.machine import machine
from clustercaps.utils.progress import StepBar

COLUMNS = (
    *("model", "layer", "pass", "in_chans", "image_side", "batch", "measured_ms", "iqr_ms"),
    *("measurements", "products_ms", "others_ms", "memory_ms", "bound_ms", "times_bound"),
    *("largest", "gmac", "peak_gmac_per_s", "copy_gb_per_s", "clock"),
)
# The check compares values: a few images of every shape are enough.
CHECKED_IMAGES = 2
Clock = Callable[[], float]


def run(options: Options) -> None:
    """Time the layers, and print and store the results."""
    require_kernel("bounds")
    cases = [
        replace(case, layer=number)
        for case in map(options.case, options.models)
        for number in range(1, 1 + len(capsule_layers(case.network())))
    ]
    with StepBar(len(cases) * (1 + options.rounds)) as bar:
        for case in cases:
            bar.say(f"checking {case.name}")
            check(replace(case, batch=min(case.batch, CHECKED_IMAGES)), ["cpu"])
            bar.step()
        seconds, speeds = time_passes(cases, options, bar)
    rows = [
        row(case, build(case, "cpu"), name, seconds[case, name], speeds)
        for case in cases
        for name in PASSES
    ]
    told = machine()
    write_csv(options.out, COLUMNS, rows, told)
    print(f"{told['machine']}; torch {told['torch']}; commit {told['commit']}")
    print(
        f"peak {speeds.multiply_adds / 1e9:.0f} billion multiply-adds per second, copies "
        f"{speeds.bytes / 1e9:.1f} GB/s; medians of {options.rounds} rounds, "
        f"{clock_name()}\n"
    )
    print(f"{table(options.out)}\n\n{options.out}")


def time_passes(
    cases: Sequence[Case], options: Options, bar: StepBar
) -> tuple[dict[tuple[Case, str], list[float]], Speeds]:
    """Seconds of a call by case and pass, one per round, and the speeds of the machine.

    Cases take turns, so that noise affects all of them. The speeds are measured before every case
    and are the highest seen: a bound must not be too high.
    """
    works = {case: build(case, "cpu") for case in cases}
    seen: dict[tuple[Case, str], list[float]] = {(c, name): [] for c in cases for name in PASSES}
    clock = CLOCKS[clock_name()]
    measure, speeds = measure_speeds(options.quick, clock), []
    for number in range(1, options.rounds + 1):
        bar.say(f"timing, round {number} of {options.rounds}")
        for case, work in works.items():
            speeds.append(measure())
            for name, seconds in repeat(work, options.seconds, clock).items():
                seen[case, name].append(seconds)
            bar.step()
    peak = max(speed.multiply_adds for speed in speeds)
    return seen, Speeds(peak, max(speed.bytes for speed in speeds))


def clock_name() -> str:
    """The clock for the number of threads."""
    return "CPU time" if torch.get_num_threads() == 1 else "wall time"


CLOCKS: dict[str, Clock] = {"CPU time": time.process_time, "wall time": time.perf_counter}


def repeat(work: Workload, seconds: float, clock: Clock) -> dict[str, float]:
    """Mean seconds inside the kernel by pass, over as many steps as fit in the given time."""
    # Untimed, because another case has just filled the caches.
    work.training_step()
    count, begin = 0, clock()
    with kernel_seconds(clock) as spent:
        while count == 0 or clock() - begin < seconds:
            work.training_step()
            count += 1
    return {name: spent[name] / count for name in PASSES}


def row(case: Case, work: Workload, name: str, seen: list[float], speeds: Speeds) -> list[Any]:
    """One pass of a layer, in the order of `COLUMNS`."""
    (layer,) = capsule_layers(work.module)
    done = work_of(layer, case.batch, name, work.x.requires_grad)
    found = limits(done, speeds)
    measured = statistics.median(seen)
    low, _, high = statistics.quantiles(seen, method="inclusive") if len(seen) > 1 else seen * 3
    times = (measured, high - low)
    parts = (found.products, found.others, found.memory, found.bound)
    return [
        *(case.model, case.layer, name, case.in_chans, case.size, case.batch),
        *(1e3 * seconds for seconds in times),
        len(seen),
        *(1e3 * seconds for seconds in parts),
        *(measured / found.bound, found.largest, done.products / 1e9),
        *(speeds.multiply_adds / 1e9, speeds.bytes / 1e9, clock_name()),
    ]


def table(path: Path) -> str:
    """The table of docs/benchmarks.md, from the CSV alone: a line per layer, both passes."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    header = ["layer", *(f"{name}: {what}" for name in PASSES for what in PARTS), "largest part"]
    lines = [header, ["---"] * len(header)]
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        both = (first, second)
        largest = dict.fromkeys(row["largest"] for row in both)
        name = f"{first['model'].upper()}, layer {first['layer']}"
        lines.append([name, *(cell for each in both for cell in cells(each)), ", ".join(largest)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


PARTS = ("ms", "bound, ms", "measured / bound")


def cells(row: Mapping[str, str]) -> list[str]:
    """Time, bound and ratio of one pass."""
    shown = [f"{float(row[name]):.2f}" for name in ("measured_ms", "bound_ms")]
    return [*shown, f"{float(row['times_bound']):.2f}x"]
