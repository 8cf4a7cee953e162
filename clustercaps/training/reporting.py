"""What a run prints; a closed pipe or terminal never stops it."""

import math
import os
import sys
from typing import Any

from tqdm import tqdm

from clustercaps.models import ImageClassifier
from clustercaps.training.progress import Progress
from clustercaps.training.settings import TrainSettings

# Fewer steps in an epoch say nothing about the learning rate.
FEW_STEPS = 10


def say(text: str, stream: Any = None) -> None:
    """Print a line; if nobody reads `stream` (stdout by default), print nothing more there."""
    stream = stream or sys.stdout
    if stream is None:
        # Python was started without it.
        return
    try:
        if sys.stderr is None:
            print(text, file=stream, flush=True)
        else:
            # Above the progress bar.
            tqdm.write(text, file=stream)
            stream.flush()
    except (OSError, ValueError):
        silence(stream)


def silence(stream: Any) -> None:
    """Send everything further to the null device, also what Python writes at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


class QuietBar(tqdm):  # type: ignore[misc]
    """A progress bar that goes silent when its terminal is gone."""

    def update(self, n: float | None = 1) -> bool | None:
        """Advance the bar."""
        try:
            return super().update(n)
        except (OSError, ValueError):
            self.disable = True
            return None

    def close(self) -> None:
        """Remove the bar."""
        try:
            super().close()
        except (OSError, ValueError):
            self.disable = True


def run_bar(settings: TrainSettings, progress: Progress, steps: int, shown: bool) -> QuietBar:
    """A progress bar over the whole run, so that it shows the remaining time of the run."""
    return QuietBar(
        total=steps * settings.epochs,
        initial=progress.steps,
        desc=f"epoch {progress.epoch + 1}/{settings.epochs}",
        unit="step",
        leave=False,
        # None: no bar if stderr is not a terminal.
        disable=None if shown and sys.stderr is not None else True,
    )


def standing(settings: TrainSettings, progress: Progress) -> str:
    """Speed, loss and error in the current epoch."""
    rate = progress.steps * settings.batch_size / max(progress.seconds, 1e-9)
    return (
        f"{rate:.0f} images/s, loss {progress.loss / max(progress.seen, 1):.3f}, "
        f"error {100 * progress.errors / max(progress.seen, 1):.1f} %"
    )


def describe(line: dict[str, Any], settings: TrainSettings) -> str:
    """The metrics of an epoch in one line."""
    split = "validation" if settings.validate else "test"
    tested = f", {split} error {line['test_error']:.2f} %" if "test_error" in line else ""
    tested += f", novel {line['novel_error']:.2f} %" if "novel_error" in line else ""
    return (
        f"epoch {line['epoch']}/{settings.epochs}: loss {line['train_loss']:.4f}, "
        f"train error {line['train_error']:.2f} %{tested}, {line['seconds']:.0f} s"
    )


def high_loss(
    line: dict[str, Any], model: ImageClassifier, steps: int, settings: TrainSettings
) -> str:
    """A note if the first epoch's loss is worse than that of guessing; empty otherwise.

    Args:
        line: Metrics of an epoch.
        model: The network.
        steps: Steps of an epoch; the loss of a few is that of the initial weights.
        settings: Settings of the run.
    """
    chance = math.log(max(model.num_classes, 1))
    if line["epoch"] != 1 or steps < FEW_STEPS or line["train_loss"] <= chance:
        return ""
    if not model.takes_label_smoothing():
        return ""
    return (
        f"the loss of the first epoch, {line['train_loss']:.2f}, is above {chance:.2f} = "
        f"log({model.num_classes}), the loss of guessing; the learning rate is probably too high: "
        f"try --lr {settings.lr / 3:.2g}, or `clustercaps lr-find`"
    )
