"""The figures of a finished run."""

import sys
from importlib.util import find_spec
from pathlib import Path

from clustercaps import data
from clustercaps.figures import confusion_figure, learning_curves, routing_figure
from clustercaps.models import CapsuleNet
from clustercaps.training.batches import open_split
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.trained import Trained


def draw_run(path: Path, data_dir: str | None = None) -> list[Path]:
    """Learning curve, confusion matrix and, for a capsule network, its routing weights.

    Args:
        path: The run's folder.
        data_dir: Where the run found its data, if not in the cache.
    """
    if find_spec("matplotlib") is None:
        print("no figures: pip install 'clustercaps[figures]'", file=sys.stderr)
        return []
    trained = Trained.open(path)
    # The images the run was tested on: with --validate, the held-out fifth and not the test set.
    images = open_split(trained.settings, "test", data_dir)
    drawn = [
        learning_curves({str(path): RunFolder(path).metrics()}, path / "learning-curve.png"),
        confusion_figure(trained.score(images), trained.class_names, path / "confusion.png"),
    ]
    if isinstance(trained.model, CapsuleNet) and isinstance(images, data.Images):
        first = [int((images.labels == c).nonzero()[0]) for c in images.labels.unique()[:6]]
        pixels = data.test_transform(trained.settings.data)(images.pixels[first])
        drawn.append(routing_figure(trained.model, pixels, path / "routing.png"))
    return drawn
