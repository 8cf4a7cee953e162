"""Figures of error rates, for a column of a journal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.spread import Spread
from clustercaps.utils.plotting import (
    COLUMN,
    PAGE,
    SMALL,
    add_legend,
    add_note,
    logarithmic,
    mark_cut,
    new_figure,
    style_of,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Series -> position on the x axis -> errors of its seeds.
Panel = Mapping[str, Mapping[str, Spread]]
# The same positions with the paper's number.
Printed = Mapping[str, Mapping[str, float]]
# Every network of the paper is trained for as long.
PAPER = "paper (300 epochs)"


@styled
def error_figure(
    panels: Mapping[str, Panel],
    xlabel: str,
    printed: Mapping[str, Printed] | None = None,
) -> "Figure":
    """Error rates in panels: a marker at the mean, error bars of one sd, a small dot per seed.

    Args:
        panels: The series of each panel, by panel title.
        xlabel: Label of the x axis.
        printed: The paper's numbers, as hollow markers; only for the same task.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(COLUMN if columns == 1 else PAGE, 2.2 * rows + 0.2)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for ax, (title, panel) in zip(axes, panels.items(), strict=False):
        _draw(ax, panel, (printed or {}).get(title, {}))
        ax.set(title=title, xlabel=xlabel, ylabel="test error (%)")
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    add_legend(figure)
    note_seeds(
        figure,
        [s for panel in panels.values() for series in panel.values() for s in series.values()],
    )
    return figure


def note_seeds(figure: "Figure", shown: Iterable[Spread]) -> None:
    """Say what error bars and small dots are, if there are any."""
    if any(spread.sd is not None for spread in shown):
        add_note(figure, "error bars: standard deviation over seeds; small dots: seeds")


def _draw(ax: "Axes", panel: Panel, printed: Printed) -> None:
    places = list(dict.fromkeys(place for series in panel.values() for place in series))
    for number, (name, series) in enumerate(panel.items()):
        colour, marker = style_of(number)
        # Side by side, so that close values do not overlap.
        shift = 0.24 * (number - (len(panel) - 1) / 2)
        for place, spread in series.items():
            x = places.index(place) + shift
            label = name if place == next(iter(series)) else None
            draw_spread(ax, x, spread, colour, marker, label=label)
        theirs = printed.get(name, {})
        xs = [places.index(place) + shift for place in series if place in theirs]
        values = [theirs[place] for place in series if place in theirs]
        if values:
            label = PAPER if len(panel) == 1 else f"{name}, {PAPER}"
            hollow: dict[str, Any] = {"mfc": "none", "mec": colour, "ms": 7}
            ax.errorbar(xs, values, fmt=marker, label=label, **hollow)
    finish(ax, places)


def draw_spread(
    ax: "Axes",
    place: float,
    spread: Spread,
    colour: str,
    marker: str,
    across: bool = False,
    label: str | None = None,
) -> None:
    """Mean and standard deviation of a cell, and beside them a small dot for each of its seeds.

    Args:
        ax: The panel.
        place: Position on the axis of the cells.
        spread: The values of the seeds.
        colour: Colour of everything.
        marker: Marker of the mean.
        across: Errors are on the x axis instead of the y axis.
        label: Name in the legend.
    """
    style: dict[str, Any] = {"fmt": marker, "color": colour, "label": label}
    bar = None if spread.sd is None else [spread.sd]
    beside = [place + (0.28 if across else 0.09)] * len(spread.values)
    dots: dict[str, Any] = {"ls": "none", "marker": ".", "ms": 2.5, "color": colour}
    if across:
        ax.errorbar([spread.mean], [place], xerr=bar, **style)
    else:
        ax.errorbar([place], [spread.mean], yerr=bar, **style)
    if bar:
        ax.plot(*((spread.values, beside) if across else (beside, spread.values)), **dots)


def finish(ax: "Axes", places: Sequence[str]) -> None:
    """Ticks at the places, a grid, and a mark where the axis of values is cut."""
    ax.set_xticks(range(len(places)), places)
    ax.set_xlim(-0.6, len(places) - 0.4)
    ax.margins(y=0.12)
    ax.grid(axis="y")
    mark_cut(ax, "y")


@styled
def line_figure(
    groups: Mapping[str, Mapping[str, Spread]], order: Sequence[str], title: str, xlabel: str
) -> "Figure":
    """Errors of many cells, each on a line of its own, in a column.

    Args:
        groups: Name in the legend -> cell -> errors of its seeds.
        order: The cells, from top to bottom.
        title: Title of the panel.
        xlabel: Label of the x axis.
    """
    figure = new_figure(COLUMN, max(1.6, 0.16 * len(order) + 0.9))
    ax = figure.subplots()
    for number, (name, cells) in enumerate(groups.items()):
        colour, marker = style_of(number)
        for id, spread in cells.items():
            label = name if id == next(iter(cells)) else None
            draw_spread(ax, float(order.index(id)), spread, colour, marker, True, label)
    ax.set(title=title, xlabel=xlabel, ylim=(len(order) - 0.4, -0.6))
    ax.set_yticks(range(len(order)), order)
    ax.margins(x=0.08)
    ax.grid(axis="x")
    mark_cut(ax, "x")
    add_legend(figure)
    note_seeds(figure, [spread for cells in groups.values() for spread in cells.values()])
    return figure


@styled
def curve_figure(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    marked: Sequence[str],
    title: str,
    xlabel: str,
) -> "Figure":
    """Errors of many runs over time, logarithmic, with their names in the order of the last errors.

    Args:
        curves: Run -> times and errors of its tests.
        marked: Runs in colour; the others are grey.
        title: Title of the panel.
        xlabel: Label of the x axis.
    """
    figure = new_figure(PAGE, max(2.2, 0.16 * len(curves) + 0.9))
    ax = figure.subplots()
    for id, (times, errors) in curves.items():
        colour, marker = style_of(marked.index(id)) if id in marked else ("0.6", ".")
        ax.plot(times, errors, marker=marker, color=colour, zorder=3 if id in marked else 2)
    ax.set(title=title, xlabel=xlabel, ylabel="test error (%)")
    ax.set_xlim(left=0)
    logarithmic(ax, "y")
    ax.grid(axis="y")
    name_curves(ax, curves, marked)
    return figure


def name_curves(
    ax: "Axes", curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], marked: Sequence[str]
) -> None:
    """Names and last errors right of the panel, evenly spaced, each with a line to its curve."""
    ordered = sorted(curves, key=lambda id: curves[id][1][-1])
    for place, id in enumerate(ordered):
        times, errors = curves[id]
        colour = style_of(marked.index(id))[0] if id in marked else "0.35"
        ax.annotate(
            f"{id}  {errors[-1]:.2f}",
            (times[-1], errors[-1]),
            (1.08, (place + 0.5) / len(ordered)),
            textcoords="axes fraction",
            color=colour,
            fontsize=SMALL,
            va="center",
            arrowprops={"arrowstyle": "-", "color": "0.8", "lw": 0.5, "relpos": (0, 0.5)},
        )
