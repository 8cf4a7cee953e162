"""Figures: one style for all of them, and how they are saved.

Figures are as wide as a column or a page of a journal. Panels have titles, figures have none: the
legend is above the panels, and conditions such as the machine are in a note below them. Series
differ in marker or line style as well as in colour.
"""

import textwrap
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from clustercaps.utils.extras import naming_extra
from clustercaps.utils.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: a column of a two-column page (8.5 cm), and both columns.
COLUMN, PAGE = 3.35, 7.0
# Points: ticks and legends, and below it only labels inside pictures.
SMALL, TINY = 7, 6
# The colour-blind-safe palette of Okabe and Ito, for a light background.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
# As many marker shapes, for print without colours.
MARKERS = "osD^vPX"
# Line styles for curves that cross.
LINES = ("-", "--", "-.", ":")
STYLE: dict[str, Any] = {
    "font.size": SMALL,
    "axes.labelsize": SMALL + 1,
    "axes.titlesize": SMALL + 1,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "lines.markersize": 4.0,
    "lines.markeredgewidth": 0.8,
    "errorbar.capsize": 2.0,
    # TrueType fonts, which journals accept.
    "pdf.fonttype": 42,
}

P = ParamSpec("P")
T = TypeVar("T")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Make a function draw in the style of this library, whatever matplotlib is set to."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        with _style():
            figure = draw(*args, **kwargs)
            for ax in getattr(figure, "axes", ()):
                # Ticks are made late, when the style is no longer set; all are copies of these.
                for axis in (ax.xaxis, ax.yaxis):
                    axis.get_major_ticks(1)
                    axis.get_minor_ticks(1)
            return figure

    return drawn


def _style() -> Any:
    with naming_extra():
        from matplotlib import style
    return style.context(STYLE, after_reset=True)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure that needs no display; for functions that are `styled`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def style_of(number: int) -> tuple[str, str]:
    """Colour and marker of the n-th series of a figure; they repeat after seven."""
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


def add_legend(figure: "Figure", columns: int | None = None) -> None:
    """Add one legend for all panels, above them, if there is more than one entry.

    Args:
        figure: The figure.
        columns: Number of columns; as many as fit if None.
    """
    handles = {
        label: handle
        for ax in figure.axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    if len(handles) > 1:
        # Points: a character of this size takes about 4, a symbol and its space 28.
        widths, available = [4 * len(name) + 28 for name in handles], 72 * figure.get_figwidth()
        fit = len(handles) if sum(widths) < available else int(available / max(widths))
        place: dict[str, Any] = {"loc": "outside upper center", "columnspacing": 1.2}
        place["ncols"] = min(len(handles), columns or max(1, fit))
        figure.legend(handles.values(), handles, **place)


def add_note(figure: "Figure", text: str) -> None:
    """State conditions, such as the machine, below the panels."""
    # A character of this size takes about 3.3 points.
    text = textwrap.fill(text, int(72 * figure.get_figwidth() / 3.3))
    figure.supxlabel(text, fontsize=TINY, color="0.35")


def mark_cut(ax: "Axes", name: str) -> None:
    """Mark the beginning of the axis "x" or "y" by two strokes if it does not begin at zero."""
    across = name == "x"
    low, high = ax.get_xlim() if across else ax.get_ylim()
    if low <= 0 <= high:
        return
    stroke = [(-0.5, -1), (0.5, 1)] if across else [(-1, -0.5), (1, 0.5)]
    for along in (0.015, 0.035):
        place = (along, 0) if across else (0, along)
        options: dict[str, Any] = {"ms": 5, "mew": 0.7, "color": "black", "clip_on": False}
        ax.plot(*place, marker=stroke, ls="none", transform=ax.transAxes, **options)


def whole_numbers(ax: "Axes", last: int) -> None:
    """Ticks at whole epochs, from the first to the last."""
    from matplotlib.ticker import MaxNLocator

    edge = 0.5 if last < 3 else 0.03 * last
    ax.set_xlim(1 - edge, last + edge)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))


def logarithmic(ax: "Axes", name: str) -> None:
    """Make the axis "x" or "y" logarithmic, with plain numbers, also if it covers one decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    (ax.set_xscale if name == "x" else ax.set_yscale)("log")
    axis = ax.xaxis if name == "x" else ax.yaxis
    low, high = axis.get_view_interval()
    # As few numbers as possible, but at least two.
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), [float(digit) for digit in range(1, 10)]):
        locator = LogLocator(subs=steps)
        axis.set_major_locator(locator)
        if sum(low <= value <= high for value in locator.tick_values(low, high)) > 1:
            break
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def save(figure: "Figure", path: Path, pdf: bool = False) -> Path:
    """Write a figure as PNG, atomically.

    Args:
        figure: The figure.
        path: Path of the PNG.
        pdf: Also write a vector PDF next to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _style():
        _write(figure, path, format="png", dpi=200, pil_kwargs={"optimize": True})
        if pdf:
            # No date, so that the file is reproducible.
            _write(figure, path.with_suffix(".pdf"), format="pdf", metadata={"CreationDate": None})
    return path


def _write(figure: "Figure", path: Path, **options: Any) -> None:
    with replacing(path) as part:
        figure.savefig(part, **options)
