"""Figures of error rates, in one style for all experiments, legible in a journal column."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.spread import Spread
from clustercaps.utils.plotting import new_figure, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: one column of a two-column page.
COLUMN = 3.5
SMALL = 7

# Series -> position on the x axis -> errors of its seeds.
Panel = Mapping[str, Mapping[str, Spread]]
# The same positions with the paper's number.
Printed = Mapping[str, Mapping[str, float]]


def error_figure(
    panels: Mapping[str, Panel],
    xlabel: str,
    ylabel: str = "test error (%)",
    printed: Mapping[str, Printed] | None = None,
) -> "Figure":
    """Error rates in panels: a marker at the mean, error bars of one sd, a faint dot per seed.

    Args:
        panels: The series of each panel, by panel title.
        xlabel: Label of the x axis.
        ylabel: Label of the y axis.
        printed: The paper's numbers, as hollow markers; only for the same task.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(COLUMN * columns, 2.4 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for ax, (title, panel) in zip(axes, panels.items(), strict=False):
        _draw(ax, panel, (printed or {}).get(title, {}))
        ax.set_title(title, fontsize=SMALL + 1)
        ax.set_xlabel(xlabel, fontsize=SMALL + 1)
        ax.set_ylabel(ylabel, fontsize=SMALL + 1)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    add_legend(figure)
    return figure


def _draw(ax: "Axes", panel: Panel, printed: Printed) -> None:
    places = list(dict.fromkeys(place for series in panel.values() for place in series))
    for number, (name, series) in enumerate(panel.items()):
        colour, marker = style_of(number)
        # Side by side, so that close values do not overlap.
        shift = 0.16 * (number - (len(panel) - 1) / 2)
        for place, spread in series.items():
            x = places.index(place) + shift
            label = name if place == next(iter(series)) else None
            seeds = [x] * len(spread.values)
            ax.plot(seeds, spread.values, ".", ms=3, color=colour, alpha=0.4)
            style: dict[str, Any] = {
                "fmt": marker,
                "ms": 4,
                "capsize": 2,
                "color": colour,
                "label": label,
            }
            ax.errorbar([x], [spread.mean], [spread.sd or 0.0], **style)
        ours = printed.get(name, {})
        xs = [places.index(place) + shift for place in series if place in ours]
        values = [ours[place] for place in series if place in ours]
        if values:
            hollow: dict[str, Any] = {
                "mfc": "none",
                "mec": colour,
                "ls": "none",
                "ms": 7,
                "mew": 0.8,
            }
            label = "paper" if len(panel) == 1 else f"{name}, paper"
            ax.plot(xs, values, marker, label=label, **hollow)
    finish(ax, places)


def finish(ax: "Axes", places: Sequence[str]) -> None:
    """Set ticks and grid, the same in every figure."""
    ax.set_xticks(range(len(places)), places)
    ax.set_xlim(-0.6, len(places) - 0.4)
    ax.margins(y=0.1)
    ax.tick_params(labelsize=SMALL)
    ax.grid(axis="y", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def add_legend(figure: "Figure") -> None:
    """Add one legend for all panels, below them."""
    handles = {
        label: handle
        for ax in figure.axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    if len(handles) > 1:
        columns = max(1, int(figure.get_figwidth() / 1.7))
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
        figure.legend(handles.values(), handles, frameon=False, fontsize=SMALL, **place)
