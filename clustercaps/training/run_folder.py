"""The run folder: its files, its lock, and whether the run is finished."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from clustercaps.training.settings import TrainSettings, from_json
from clustercaps.utils.files import read_json, remove_unfinished, take_lock, write_atomically

SETTINGS = "settings.json"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.safetensors"
RESULT = "result.json"
CONFUSION = "confusion.json"
MODEL = "model"
TRACKER = "tracker"
LOCK = ".lock"


class RunFolder:
    """A run folder, locked by one run at a time.

    Contains `settings.json`, `metrics.jsonl` (one line per epoch), `checkpoint.safetensors`, and
    when finished `result.json`, `confusion.json` and `model/`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: TextIO | None = None

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
        return from_json(path.read_text(encoding="utf-8"), str(path)) if path.exists() else None

    def metrics(self) -> list[dict[str, Any]]:
        """One entry per finished epoch; an incomplete last line is ignored."""
        path = self.path / METRICS
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def open(self, settings: TrainSettings, resume: bool, overwrite: bool) -> None:
        """Lock the folder for a run with these settings; raises an error if it cannot be used."""
        if resume and overwrite:
            raise ValueError("--resume and --overwrite exclude each other; pass only one")
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; pass another --out")
        if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / SETTINGS).exists():
            raise ValueError(f"{self.path} is not empty and not a run; pass another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        earlier = self.settings
        if earlier is not None and not (resume or overwrite):
            state = "is finished" if self.result is not None else "is not finished"
            raise ValueError(
                f"the run in {self.path} {state}; --resume continues it, --overwrite starts over"
            )
        if earlier is not None and overwrite:
            self._clear()
        elif earlier is not None and earlier != settings:
            raise ValueError(f"cannot resume {self.path}: {differences(earlier, settings)}")
        self._remove_unfinished()
        write_atomically(self.path / SETTINGS, settings.to_json())

    def close(self) -> None:
        """Release the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def keep_metrics(self, epochs: int) -> None:
        """Delete the lines of epochs that a resumed run will repeat."""
        kept = [line for line in self.metrics() if line["epoch"] <= epochs]
        write_atomically(self.path / METRICS, "".join(json.dumps(line) + "\n" for line in kept))

    def add_metrics(self, line: dict[str, Any]) -> None:
        """Append the line of an epoch."""
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def keep_last_test(self, class_names: Sequence[str], counts: Mapping[str, Any]) -> None:
        """Write the file that `last_test` reads."""
        content = {"class_names": list(class_names), **counts}
        write_atomically(self.path / CONFUSION, json.dumps(content) + "\n")

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result, which marks the run as finished."""
        write_atomically(self.path / RESULT, json.dumps(result, indent=2) + "\n")

    def _take_lock(self) -> None:
        try:
            self._lock = take_lock(self.path / LOCK, wait=False)
        except BlockingIOError as error:
            raise ValueError(
                f"{self.path} is in use by process {error.filename}; wait for it, or pass another "
                "--out"
            ) from error

    def _clear(self) -> None:
        for folder in (self.model, self.tracker):
            shutil.rmtree(folder, ignore_errors=True)
        for entry in self.path.iterdir():
            if entry.is_file() and entry.name != LOCK:
                entry.unlink()

    def _remove_unfinished(self) -> None:
        remove_unfinished(self.path)
        for leftover in self.model.glob(".saving-*"):
            shutil.rmtree(leftover, ignore_errors=True)


def differences(stored: TrainSettings, asked: TrainSettings) -> str:
    """How the stored settings of a run differ from the requested ones."""
    changed = [
        f"{name} was {value!r}, now {getattr(asked, name)!r}"
        for name, value in vars(stored).items()
        if value != getattr(asked, name)
    ]
    return "; ".join(changed) + "; pass the same settings, or none"
