"""Figures of benchmarks, drawn from their CSV files alone."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustercaps.bench.cases import PAPER_MODELS
from clustercaps.bench.fits import exponent, power_law, straight_line
from clustercaps.utils.paths import check_input, output_path
from clustercaps.utils.plotting import (
    COLOURS,
    COLUMN,
    PAGE,
    add_legend,
    add_note,
    logarithmic,
    new_figure,
    save,
    style_of,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[dict[str, str]]
# The same colour and marker for a backend in all figures.
BACKENDS = ("reference", "chunked", "cpu", "official", "compiled", "triton")
UNITS = {"image area": "image area (pixels)", "batch": "batch (images)"}


def redraw(paths: Sequence[Path]) -> list[Path]:
    """Draw the figures of CSV files next to them; nothing is drawn if one of them cannot be.

    Args:
        paths: Files that `clustercaps bench` wrote.
    """
    figures = {path.with_suffix(".png"): figure_of(path) for path in paths}
    for path in figures:
        output_path(path)
        output_path(path.with_suffix(".pdf"))
    return [save(figure, path, pdf=True) for path, figure in figures.items()]


def figure_of(path: Path) -> "Figure":
    """The figure of a CSV file; its columns say which benchmark wrote it."""
    check_input(path)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        columns = set(rows[0]) if rows else set()
        for needed, draw in KINDS.items():
            if {"machine", *needed} <= columns:
                return draw(rows)
    except (csv.Error, UnicodeDecodeError, TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"{path} cannot be drawn: {error}; restore it, or measure again") from None
    raise ValueError(
        f"{path} has no figure; expected a file of bench models, layers, scaling or peers"
    )


@styled
def backends_figure(rows: Rows) -> "Figure":
    """One panel per measure, one line per network or layer, one marker per backend.

    Markers instead of bars: on a logarithmic axis the base of a bar is arbitrary.
    """
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    names = list(dict.fromkeys(case_name(row) for row in rows))
    figure = new_figure(COLUMN, (0.3 * len(names) + 0.7) * -(-len(measures) // 2) + 0.5)
    panels = figure.subplots(-(-len(measures) // 2), 2, sharey=True, squeeze=False).flatten()
    for ax, measure in zip(panels, measures, strict=False):
        own = [row for row in rows if row["measure"] == measure]
        found = [name for name in BACKENDS if any(row["backend"] == name for row in rows)]
        for name in found:
            mine = [row for row in own if row["backend"] == name]
            # One above the other, so that close values do not overlap.
            shift = 0.5 * ((found.index(name) + 0.5) / len(found) - 0.5)
            places = [names.index(case_name(row)) + shift for row in mine]
            colour, marker = style_of(BACKENDS.index(name))
            ranges = [float(row["iqr"] or 0) / 2 for row in mine]
            values = [float(row["value"]) for row in mine]
            style: dict[str, Any] = {"fmt": marker, "ms": 3.5, "elinewidth": 0.8, "capsize": 1.5}
            ax.errorbar(values, places, xerr=ranges, label=name, color=colour, **style)
        ax.set(title=measure, xlabel="MB" if own[0]["unit"] == "MB" else "time (ms)")
        ax.margins(x=0.1)
        finish(ax)
    for ax in panels[len(measures) :]:
        ax.set_axis_off()
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    add_legend(figure)
    used = rows[0].get("accelerator", "none")
    add_note(figure, f"{conditions(rows, used)}; bars: interquartile range")
    return figure


@styled
def systems_figure(rows: Rows) -> "Figure":
    """Time and memory of a training step, one line per system, fastest on top."""
    ranked = sorted(rows, key=lambda row: float(row["step_ms"]))
    figure = new_figure(PAGE, 0.145 * len(rows) + 1.0)
    panels = figure.subplots(1, 2, sharey=True)
    values = {
        "training step (ms)": [float(row["step_ms"]) for row in ranked],
        "peak memory of a training step (MB)": [
            float(row["peak_memory_mb"] or row["memory_estimate_mb"]) for row in ranked
        ],
    }
    groups = {"cluster routing": True, "other routings": False}
    for ax, (xlabel, found) in zip(panels, values.items(), strict=True):
        for number, (name, ours) in enumerate(groups.items()):
            places = [n for n, row in enumerate(ranked) if (row["model"] in PAPER_MODELS) == ours]
            colour, marker = style_of(number)
            ax.plot([found[n] for n in places], places, marker, color=colour, label=name)
        ax.set_xlabel(xlabel)
        finish(ax)
        # To follow the line of a system.
        ax.grid(axis="y", lw=0.3)
    panels[0].set_yticks(range(len(ranked)), [row["model"] for row in ranked])
    panels[0].set_ylim(len(ranked) - 0.4, -0.6)
    add_legend(figure)
    add_note(figure, conditions(rows))
    return figure


@styled
def scaling_figure(rows: Rows) -> "Figure":
    """One panel per size: measured points with their interquartile range, and both fits."""
    grown: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        grown.setdefault(row["grows"], []).append(row)
    figure = new_figure(PAGE, 2.3)
    panels = figure.subplots(1, len(grown), sharey=True, squeeze=False)[0]
    for ax, (name, mine) in zip(panels, grown.items(), strict=True):
        sizes, times = ([float(row[key]) for row in mine] for key in ("size", "value"))
        ranges = [float(row["iqr"]) / 2 for row in mine]
        ax.errorbar(sizes, times, ranges, fmt="o", color=COLOURS[0], label="measured")
        steps = [sizes[0] * (sizes[-1] / sizes[0]) ** (n / 20) for n in range(21)]
        curve = [power_law(sizes, times, step) for step in steps]
        ax.plot(steps, curve, color="0.4", lw=0.9, zorder=1, label="power of the size")
        fixed, rise, _ = straight_line(sizes, times)
        if mine[0]["expected_exponent"] == "1" and fixed > 0:
            line = [fixed + rise * step for step in steps]
            label = "fixed + c size"
            ax.plot(steps, line, "--", color=COLOURS[1], lw=0.9, zorder=1, label=label)
        ax.set_xscale("log", base=2)
        ax.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        ax.set_title(f"exponent {exponent(sizes, times):.2f}")
        ax.set_xlabel(UNITS.get(name, name))
        ax.grid(axis="both")
    logarithmic(panels[0], "y")
    panels[0].set_ylabel("training step (ms)")
    add_legend(figure)
    first = rows[0]
    add_note(figure, f"{first['model']}, {first['backend']}; {first['machine']}")
    return figure


# Columns that tell the files of a benchmark apart -> how they are drawn.
KINDS: dict[tuple[str, ...], Callable[[Rows], "Figure"]] = {
    ("backend", "measure", "value", "iqr", "layer"): backends_figure,
    ("grows", "size", "value", "iqr", "expected_exponent"): scaling_figure,
    ("step_ms", "peak_memory_mb", "memory_estimate_mb"): systems_figure,
}


def finish(ax: "Axes") -> None:
    """A logarithmic x axis with its grid; no marks between the lines of the panels."""
    logarithmic(ax, "x")
    ax.grid(axis="x")
    ax.tick_params(axis="y", length=0)


def case_name(row: dict[str, str]) -> str:
    """The network, and the layer if it is one."""
    return row["model"] if row["layer"] == "all" else f"{row['model']} layer {row['layer']}"


def conditions(rows: Rows, accelerator: str = "none") -> str:
    """Images, and machine or accelerator, as in the note below the panels."""
    names = ("batch", "in_chans", "image_side", "image_side")
    images = dict.fromkeys("x".join(row[name] for name in names) for row in rows)
    where = rows[0]["machine"] if accelerator in ("none", "") else accelerator
    return f"{', '.join(images)}; {where}"
