"""Figures of what a trained network does with an image, for notebooks and papers.

Exports `routing`, `votes`, `perturbations` and `transforms`, which return matplotlib figures, and
`save`, which writes one as PNG and PDF. Images are preprocessed, as the network reads them; layers,
channels and dimensions start at 1.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from clustercaps.figures.capsules import routing, votes
from clustercaps.figures.reconstructions import perturbations, transforms
from clustercaps.utils.plotting import save as _save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["perturbations", "routing", "save", "transforms", "votes"]


def save(figure: "Figure", path: Path | str) -> Path:
    """Write a figure as PNG, and as PDF next to it.

    Args:
        figure: The figure.
        path: Path of the PNG.
    """
    return _save(figure, Path(path), pdf=True)
