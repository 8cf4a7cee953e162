"""`clustercaps bench peers`: all capsule systems, each on images of the size of its paper."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from clustercaps.bench.against import against_commit, against_file, read_rows
from clustercaps.bench.cases import PAPER_MODELS, Case, Options, build
from clustercaps.bench.csv_output import write_csv
from clustercaps.bench.figures import redraw
from clustercaps.bench.measure import Timing, show_timing, take_turns
from clustercaps.bench.peak_memory import can_measure, peak_extra_mb
from clustercaps.models.memory import memory_estimate
from clustercaps.models.peers import PEERS
from clustercaps.models.registry import count_parameters, get_preset
from clustercaps.utils.machine import machine
from clustercaps.utils.progress import StepBar
from clustercaps.utils.tables import text_table

MEASURES = ("training step", "inference", "one image")
COLUMNS = (
    *("model", "in_chans", "image_side", "batch", "parameters"),
    *("step_ms", "step_iqr_ms", "inference_ms", "inference_iqr_ms", "one_image_ms"),
    *("one_image_iqr_ms", "peak_memory_mb", "memory_estimate_mb", "measurements"),
)
# A step of a large system takes seconds: fewer images and rounds than for cluster routing alone.
BATCH, ROUNDS = 16, 3


@dataclass(frozen=True)
class Row:
    """One system."""

    case: Case
    parameters: int
    timings: dict[str, Timing]
    memory_mb: float | None
    estimate_mb: float


def run(options: Options) -> None:
    """Time every system, and print, store and plot the results."""
    cases = [
        Case(
            name,
            options.in_chans or 1,
            get_preset(name).img_size if options.published_size else options.size,
            options.batch,
        )
        for name in options.models or (*PAPER_MODELS, *PEERS)
    ]
    if options.against is None:
        publish(measure_all(cases, options), options.out)
    elif Path(options.against).is_file():
        stored = read_rows(Path(options.against), cases, options.out)
        rows = measure_all(cases, options)
        now = {row.case: dict(zip(COLUMNS, csv_row(row), strict=True)) for row in rows}
        against_file(Path(options.against), stored, now, options.out)
    else:
        against_commit(cases, options)


def measure_all(cases: Sequence[Case], options: Options) -> list[Row]:
    """Every system, one after the other."""
    rows = []
    with StepBar(len(cases) * (options.rounds * len(MEASURES) + 1)) as bar:
        for case in cases:
            bar.say(case.name)
            rows.append(measure(case, options, bar))
            # Free the buffers of a large system before the next is measured.
            gc.collect()
    return rows


def measure(case: Case, options: Options, bar: StepBar) -> Row:
    """All measurements of one system."""
    work = build(case, "auto")
    single = work.one_image()
    work.module.eval()
    calls = {"inference": work.forward, "one image": single.forward}
    timings = take_turns(calls, options.rounds, options.seconds, bar)
    work.module.train()
    timings |= take_turns(
        {"training step": work.training_step}, options.rounds, options.seconds, bar
    )
    network = case.network()
    estimate = memory_estimate(network, batch=case.batch) / 1e6
    parameters = count_parameters(
        case.model, num_classes=network.num_classes, in_chans=case.in_chans, img_size=case.size
    )
    memory = peak_extra_mb(case, "auto", threads=torch.get_num_threads()) if can_measure() else None
    bar.step()
    return Row(case, parameters, timings, memory, estimate)


def publish(rows: Sequence[Row], out: Path) -> None:
    """Print the table, write the CSV and draw the figure next to it."""
    told = machine()
    print(f"{told['machine']}; torch {told['torch']}; commit {told['commit']}")
    print("random images; medians, interquartile range in brackets\n")
    ranked = sorted(rows, key=lambda row: row.timings["training step"].median)
    header = [
        "model",
        "images",
        "parameters",
        *(f"{m}, ms" for m in MEASURES),
        "peak, MB",
        "estimate, MB",
    ]
    table = [
        [
            row.case.model,
            row.case.input,
            f"{row.parameters:,}",
            *(show_timing(row.timings[m]) for m in MEASURES),
            "-" if row.memory_mb is None else f"{row.memory_mb:.0f}",
            f"{row.estimate_mb:.0f}",
        ]
        for row in ranked
    ]
    print(text_table(header, table))
    write_csv(out, COLUMNS, [csv_row(row) for row in rows], told)
    (figure,) = redraw([out])
    print(f"\n{out}\n{figure}")


def csv_row(row: Row) -> list[object]:
    """A system in the order of `COLUMNS`."""
    case = row.case
    times = [1e3 * v for m in MEASURES for v in (row.timings[m].median, row.timings[m].iqr)]
    return [
        *(case.model, case.in_chans, case.size, case.batch, row.parameters, *times),
        *(row.memory_mb, row.estimate_mb, min(t.measurements for t in row.timings.values())),
    ]
