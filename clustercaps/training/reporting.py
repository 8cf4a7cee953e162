"""What a run prints; a closed pipe or terminal never stops it."""

import os
import sys
from typing import Any

from tqdm import tqdm

from clustercaps.training.progress import Progress
from clustercaps.training.settings import TrainSettings


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
