"""Draw the figure of stored results."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from clustercaps.experiments.harness.cells import Experiment, Row
from clustercaps.utils.plotting import save


def draw(experiment: Experiment, budget: str, rows: Sequence[Row], path: Path) -> list[Path]:
    """Write the figure as PNG and PDF next to the results; return the files that are there.

    Args:
        experiment: The experiment.
        budget: Budget of the results.
        rows: The results.
        path: Their CSV.
    """
    pictures = [path.with_suffix(suffix) for suffix in (".png", ".pdf")]
    if not experiment.has_figure(rows):
        for picture in pictures:
            picture.unlink(missing_ok=True)
    elif find_spec("matplotlib") is None:
        print("no figure: pip install 'clustercaps[figures]'", file=sys.stderr)
    else:
        save(experiment.figure(rows, budget), pictures[0], pdf=True)
    return [picture for picture in pictures if picture.exists()]
