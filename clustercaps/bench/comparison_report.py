"""A comparison of backends as text tables, a CSV and a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

from clustercaps.bench import official
from clustercaps.bench.cases import Options
from clustercaps.bench.compare import MEMORY, Comparison, Result
from clustercaps.bench.csv_output import write_csv
from clustercaps.bench.figures import redraw
from clustercaps.bench.measure import show_spread
from clustercaps.utils.devices import accelerator_name
from clustercaps.utils.machine import machine
from clustercaps.utils.tables import text_table

COLUMNS = (
    *("model", "layer", "in_chans", "image_side", "batch", "backend", "measure", "value", "unit"),
    *("iqr", "measurements", "times_reference", "times_official", "gflop", "gflop_per_s"),
    *("mm_gflop_per_s", "fraction_of_mm", "relative_error"),
)
BASELINES = ("reference", official.NAME)
# Interquartile range, relative to the median, above which a cell is flagged as noisy.
NOISY = 0.25


def publish(comparison: Comparison, measures: Sequence[str], options: Options) -> None:
    """Print the tables, write the CSV and draw the figure next to it."""
    # Of these measurements: a GPU that was not used has no part in them.
    told = {**machine(), "accelerator": accelerator_name(options.device)}
    print(describe(comparison, told))
    print("\n" + text_table(*absolute_table(comparison, measures)))
    ratios = ratio_rows(comparison, measures)
    if ratios:
        print("\nSpeed-up, or for memory the reduction factor\n")
        print(text_table(["model", "backend", "compared with", *measures], ratios))
    write_csv(options.out, COLUMNS, csv_rows(comparison), told)
    (figure,) = redraw([options.out])
    print(f"\n{options.out}\n{figure}")
    if options.device.type != "cpu" and not options.quick:
        print(
            f"\nPlease send {options.out} to the maintainers of clustercaps; attach the lines "
            "above and the output of `clustercaps kernels`."
        )


def describe(comparison: Comparison, told: Mapping[str, Any]) -> str:
    """The conditions: machine, speed of torch.mm, largest error, what was skipped."""
    ours = [error for (_, name), error in comparison.errors.items() if name != official.NAME]
    theirs = [error for (_, name), error in comparison.errors.items() if name == official.NAME]
    checked = f"checked against float64 before timing: largest relative error {max(ours):.1e}"
    if theirs:
        checked += f"; official against ours with the same weights: {max(theirs):.1e}"
    counts = [r.measurements for r in comparison.results if r.measure != MEMORY]
    used = told.get("accelerator", "none")
    where = told["machine"] if used == "none" else f"{used}; {told['machine']}"
    lines = [
        f"{where}; torch {told['torch']}; commit {told['commit']}",
        f"torch.mm, float32: {comparison.mm_gflop_per_s:.0f} GFLOP/s in the same run",
        checked,
        f"times are medians of at least {min(counts)} interleaved measurements, "
        "interquartile range in brackets",
        *comparison.notes,
    ]
    timed = [r for r in comparison.results if r.iqr is not None]
    noisy = [r for r in timed if r.iqr is not None and r.iqr > NOISY * r.value]
    if noisy:
        lines.append(
            f"BUSY MACHINE: in {len(noisy)} of {len(timed)} cells the interquartile range exceeds "
            f"{100 * NOISY:.0f} % of the median; do not trust those"
        )
    return "\n".join(lines)


def absolute_table(
    comparison: Comparison, measures: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Milliseconds and megabytes, and the fraction of torch.mm's speed of a training step."""
    cells = {(r.case, r.backend, r.measure): r for r in comparison.results}
    rows = []
    for case, backend in dict.fromkeys((r.case, r.backend) for r in comparison.results):
        row = [case.name, case.input, backend]
        row += [show(cells.get((case, backend, measure))) for measure in measures]
        share = fraction_of_mm(cells[case, backend, "training step"], comparison)
        rows.append([*row, "-" if share is None else f"{100 * share:.0f}"])
    units = [f"{measure}, {'MB' if measure == MEMORY else 'ms'}" for measure in measures]
    return ["model", "input", "backend", *units, "step, % of mm"], rows


def show(result: Result | None) -> str:
    """A cell of the table."""
    if result is None:
        return "-"
    return f"{result.value:.1f}" if result.iqr is None else show_spread(result.value, result.iqr)


def ratio_rows(comparison: Comparison, measures: Sequence[str]) -> list[list[str]]:
    """One row per case, backend and baseline."""
    results = comparison.results
    rows = []
    for case, backend in dict.fromkeys((r.case, r.backend) for r in results):
        for baseline in BASELINES:
            ratios = [
                ratio(
                    next((r for r in results if key(r) == (case, backend, m)), None),
                    baseline,
                    results,
                )
                for m in measures
            ]
            if backend not in BASELINES and any(ratios):
                shown = ["-" if value is None else f"{value:.1f}" for value in ratios]
                rows.append([case.name, backend, baseline, *shown])
    return rows


def key(result: Result) -> tuple[Any, str, str]:
    """Case, backend and measure of a result."""
    return result.case, result.backend, result.measure


def ratio(result: Result | None, baseline: str, results: Sequence[Result]) -> float | None:
    """Time or memory of the baseline divided by that of the result."""
    if result is None:
        return None
    wanted = (result.case, baseline, result.measure)
    other = next((r for r in results if key(r) == wanted), None)
    return None if other is None or result.value <= 0 else other.value / result.value


def fraction_of_mm(result: Result, comparison: Comparison) -> float | None:
    """Fraction of torch.mm's speed, with the operation count of `work.gflop`."""
    if result.gflop is None:
        return None
    return 1e3 * result.gflop / result.value / comparison.mm_gflop_per_s


def csv_rows(comparison: Comparison) -> list[list[Any]]:
    """One row per measured cell, in the order of `COLUMNS`."""
    rows = []
    for result in comparison.results:
        case = result.case
        rate = None if result.gflop is None else 1e3 * result.gflop / result.value
        rows.append(
            [
                *(case.model, case.layer or "all", case.in_chans, case.size, case.batch),
                *(result.backend, result.measure, result.value, result.unit, result.iqr),
                result.measurements,
                *(ratio(result, baseline, comparison.results) for baseline in BASELINES),
                *(result.gflop, rate, comparison.mm_gflop_per_s),
                fraction_of_mm(result, comparison),
                comparison.errors.get((case.name, result.backend)),
            ]
        )
    return rows
