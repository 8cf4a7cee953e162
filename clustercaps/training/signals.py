"""Ctrl-C and SIGTERM stop a run after the current step, with a checkpoint."""

import signal
from pathlib import Path
from types import FrameType
from typing import Any

from clustercaps.training.processes import resume_command


class Stopped(Exception):
    """A run was stopped by a signal; its checkpoint is written.

    Args:
        number: Signal number.
        folder: Run folder.
        epoch: Finished epochs.
        step: Finished steps of the current epoch.
        data_dir: Folder of the data, if it was given.
    """

    def __init__(
        self, number: int, folder: Path, epoch: int, step: int, data_dir: str | None = None
    ) -> None:
        self.exit_code = 128 + number
        super().__init__(
            f"stopped in epoch {epoch + 1} after step {step}; the checkpoint is written. Resume "
            f"with: {resume_command(folder, data_dir)}"
        )


class StopSignals:
    """While active, records SIGINT and SIGTERM; a second one takes effect immediately."""

    def __init__(self) -> None:
        self.number = 0
        self._earlier: dict[signal.Signals, Any] = {}

    @property
    def received(self) -> bool:
        """Whether a signal was received."""
        return self.number != 0

    def __enter__(self) -> "StopSignals":
        for each in (signal.SIGINT, signal.SIGTERM):
            self._earlier[each] = signal.signal(each, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._earlier.items():
            signal.signal(each, handler)

    def _remember(self, number: int, _: FrameType | None) -> None:
        self.number = number
        signal.signal(number, self._earlier[signal.Signals(number)])
