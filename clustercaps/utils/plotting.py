"""Figures: their style, and how they are saved."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustercaps.utils.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The colour-blind-safe palette of Okabe and Ito, for a light background.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
# As many marker shapes, for print without colours.
MARKERS = "osD^vPX"


def style_of(number: int) -> tuple[str, str]:
    """Colour and marker of the n-th series of a figure; they repeat after seven."""
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


def save(figure: "Figure", path: Path, pdf: bool = False) -> Path:
    """Write a figure as PNG, atomically.

    Args:
        figure: The figure.
        path: Path of the PNG.
        pdf: Also write a vector PDF next to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(figure, path, format="png", dpi=200 if pdf else 150)
    if pdf:
        from matplotlib import rc_context

        # TrueType fonts, which journals accept; no date, so that the file is reproducible.
        with rc_context({"pdf.fonttype": 42}):
            _write(figure, path.with_suffix(".pdf"), format="pdf", metadata={"CreationDate": None})
    return path


def _write(figure: "Figure", path: Path, **options: Any) -> None:
    with replacing(path) as part:
        figure.savefig(part, bbox_inches="tight", **options)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure that needs no display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'clustercaps[figures]'") from error
    return Figure(figsize=(width, height), layout="constrained")
