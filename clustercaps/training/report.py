"""The figures of a finished run."""

import sys
from pathlib import Path

from clustercaps import data
from clustercaps.models import CapsuleNet
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.trained import Trained


def draw_run(path: Path) -> list[Path]:
    """Learning curve, confusion matrix and, for a capsule network, its routing weights."""
    try:
        import matplotlib  # noqa: F401

        from clustercaps.figures import confusion_figure, learning_curves, routing_figure
    except ImportError:
        print("no figures: pip install 'clustercaps[figures]'", file=sys.stderr)
        return []
    trained = Trained.open(path)
    name = trained.settings.data
    drawn = [learning_curves({str(path): RunFolder(path).metrics()}, path / "learning-curve.png")]
    if data.is_streamed(name):
        return drawn
    drawn.append(confusion_figure(trained.score(name), trained.class_names, path / "confusion.png"))
    if isinstance(trained.model, CapsuleNet):
        images = data.load(name, "test")
        first = [int((images.labels == c).nonzero()[0]) for c in images.labels.unique()[:6]]
        pixels = data.test_transform(name)(images.pixels[first])
        drawn.append(routing_figure(trained.model, pixels, path / "routing.png"))
    return drawn
