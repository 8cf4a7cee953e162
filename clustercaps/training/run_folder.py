"""The run folder: its files, its lock, and whether the run is finished."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from clustercaps.models.locate import NETWORK
from clustercaps.models.pretrained import remove_unfinished_saves
from clustercaps.training.identity import changed_settings
from clustercaps.training.settings import TrainSettings, from_json
from clustercaps.utils.files import (
    UNFINISHED,
    naming,
    remove_unfinished,
    take_lock,
    write_atomically,
)
from clustercaps.utils.json_files import (
    json_text,
    parse_object,
    read_json,
    read_text,
    write_json,
)

SETTINGS = "settings.json"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.safetensors"
RESULT = "result.json"
CONFUSION = "confusion.json"
MODEL = NETWORK
TRACKER = "tracker"
LOCK = ".lock"
# Temporary files of safetensors, which version 0.2.0 and earlier could leave.
OLD_TEMPORARY = ".tmp??????"

METRICS_KEYS = {"epoch", "train_loss", "train_error", "seconds"}


class RunFolder:
    """A run folder, locked by one run at a time.

    Contains `settings.json`, `metrics.jsonl` (one line per epoch), `checkpoint.safetensors`, and
    when finished `result.json`, `confusion.json` and `model/`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: TextIO | None = None
        # What `open` created, and `close` removes if no run has begun.
        self._created: list[Path] = []
        self._begun = False

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint."""
        return self.path / CHECKPOINT

    @property
    def model(self) -> Path:
        """The trained network, as written by `save_pretrained`."""
        return self.path / MODEL

    @property
    def tracker(self) -> Path:
        """The folder for TensorBoard or W&B files, if they are used."""
        return self.path / TRACKER

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of a finished run; None before that."""
        path = self.path / RESULT
        return read_json(path) if path.exists() else None

    @property
    def last_test(self) -> dict[str, Any] | None:
        """Class names, and the counts of the last test from `Score.to_plain`.

        Keys: `class_names`, `test` and, for runs with `views`, `novel`. None if the file does not
        exist: before a run is finished, and for runs of version 0.1.0.
        """
        path = self.path / CONFUSION
        if not path.exists():
            return None
        content = read_json(path)
        if not {"class_names", "test"} <= content.keys():
            raise ValueError(f"{path} is corrupt; delete it, and the network is tested again")
        return content

    @property
    def settings(self) -> TrainSettings | None:
        """The settings of the run; None for an empty folder."""
        path = self.path / SETTINGS
        return from_json(read_text(path), str(path)) if path.exists() else None

    def metrics(self) -> list[dict[str, Any]]:
        """One entry per finished epoch; an incomplete last line is ignored."""
        path = self.path / METRICS
        if not path.exists():
            return []
        lines = read_text(path).split("\n")[:-1]
        found = [parse_object(line, f"{path}, line {n},") for n, line in enumerate(lines, 1)]
        for number, line in enumerate(found, 1):
            if line.get("epoch") != number or not line.keys() >= METRICS_KEYS:
                raise ValueError(f"{path} is corrupt: line {number} is not that of epoch {number}")
            if not all(isinstance(value, int | float) for value in line.values()):
                raise ValueError(f"{path} is corrupt: line {number} has more than numbers")
        return found

    def open(self, settings: TrainSettings, resume: bool, overwrite: bool) -> None:
        """Lock the folder for a run with these settings; raises an error if it cannot be used.

        Nothing else changes until `begin`; without it, `close` leaves no trace.
        """
        if resume and overwrite:
            raise ValueError("--resume and --overwrite exclude each other; pass only one")
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; pass another --out")
        try:
            self._refuse_foreign()
            self._take_lock()
            self._refuse_foreign()
            self._refuse_run(settings, resume, overwrite)
        except BaseException:
            self.close()
            raise

    def begin(self, settings: TrainSettings, overwrite: bool) -> None:
        """Start or continue the run: write its settings; with `overwrite`, delete the old run."""
        if overwrite and (self.path / SETTINGS).exists():
            self._clear()
        self._remove_unfinished()
        write_atomically(self.path / SETTINGS, settings.to_json())
        self._begun = True

    def close(self) -> None:
        """Release the folder; if no run has begun, remove what `open` created."""
        # The lock is deleted while it is held, so that nobody takes one that is about to vanish.
        # Windows cannot delete an open file.
        if sys.platform == "win32":
            self._release()
        for created in [] if self._begun else reversed(self._created):
            with suppress(OSError):
                created.rmdir() if created.is_dir() else created.unlink()
        self._created = []
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def discard_unsaved(self) -> None:
        """After an error: remove a run without a checkpoint, so that a corrected one can start."""
        if self._begun and not self.checkpoint.exists() and self.result is None:
            self._clear()
            self._begun = False

    def keep_metrics(self, epochs: int, last: dict[str, Any] | None) -> None:
        """Delete the lines of epochs that a resumed run will repeat, and add a missing last one."""
        kept = self.metrics()[:epochs]
        if len(kept) == epochs - 1 and last is not None:
            kept.append(last)
        write_atomically(self.path / METRICS, "".join(json_text(line) + "\n" for line in kept))

    def add_metrics(self, line: dict[str, Any]) -> None:
        """Append the line of an epoch."""
        path = self.path / METRICS
        with naming(path), path.open("a", encoding="utf-8") as file:
            file.write(json_text(line) + "\n")

    def keep_last_test(self, class_names: Sequence[str], counts: Mapping[str, Any]) -> None:
        """Write the file that `last_test` reads."""
        content = {"class_names": list(class_names), **counts}
        write_json(self.path / CONFUSION, content, indent=None)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result, which marks the run as finished."""
        write_json(self.path / RESULT, result)

    def _refuse_foreign(self) -> None:
        """Raise an error if the folder has files, but no run; our own lock is not counted."""
        if not self.path.is_dir() or (self.path / SETTINGS).exists():
            return
        for entry in self.path.iterdir():
            ours = entry.name == LOCK or entry.name.endswith(UNFINISHED)
            if not (ours or entry.match(OLD_TEMPORARY)):
                raise ValueError(f"{self.path} is not empty and not a run; pass another --out")

    def _refuse_run(self, settings: TrainSettings, resume: bool, overwrite: bool) -> None:
        """Raise an error if the folder has a run that this one may not continue or replace."""
        if overwrite or not (self.path / SETTINGS).exists():
            return
        if not resume:
            state = "is finished" if self.result is not None else "is not finished"
            raise ValueError(
                f"the run in {self.path} {state}; --resume continues it, --overwrite starts over"
            )
        earlier = self.settings
        assert earlier is not None
        if earlier != settings:
            raise ValueError(
                f"cannot resume {self.path}: {changed_settings(earlier, settings)}; pass the same "
                "settings, or none"
            )

    def _take_lock(self) -> None:
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        for path in reversed(missing):
            # Not parents=True: what another process creates meanwhile is not ours to remove.
            with suppress(FileExistsError):
                path.mkdir()
                self._created.append(path)
        lock = self.path / LOCK
        try:
            self._lock = take_lock(lock, wait=False)
        except BlockingIOError as error:
            raise ValueError(
                f"{self.path} is in use by process {error.filename}; wait for it, or pass another "
                "--out"
            ) from error
        # Not only if this process created it: another one that starts at the same time may have.
        if not (self.path / SETTINGS).exists():
            self._created.append(lock)

    def _clear(self) -> None:
        for folder in (self.model, self.tracker):
            shutil.rmtree(folder, ignore_errors=True)
        for entry in self.path.iterdir():
            if entry.is_file() and entry.name not in (LOCK, SETTINGS):
                entry.unlink()
        # Last: without it, files of a run are those of somebody else.
        (self.path / SETTINGS).unlink()

    def _remove_unfinished(self) -> None:
        remove_unfinished(self.path)
        remove_unfinished_saves(self.model)
        for leftover in self.path.glob(OLD_TEMPORARY):
            leftover.unlink(missing_ok=True)
