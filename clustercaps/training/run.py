"""Training runs: one, or one per seed."""

import atexit
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

from clustercaps.training.batches import Load
from clustercaps.training.loop import Trainer
from clustercaps.training.own_data import GivenImages
from clustercaps.training.processes import explained_losses, in_first
from clustercaps.training.run_folder import RESULT, SETTINGS, RunFolder
from clustercaps.training.settings import TrainSettings
from clustercaps.training.signals import Stopped
from clustercaps.utils.errors import at_least
from clustercaps.utils.json_files import write_json


def train(
    settings: TrainSettings,
    out: Path | str,
    *,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: str | None = None,
    save_every: float = 120.0,
    track: str | None = None,
    workers: int = 2,
    load: Load | None = None,
    timeout: float = 1800.0,
    train: Any = None,
    test: Any = None,
    class_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Train to the end and return the result, which is also written to `out/result.json`.

    Args:
        settings: Settings of the run.
        out: Run folder.
        resume: Resume the run in `out`; a finished run is left unchanged.
        overwrite: Delete the run in `out` first.
        data_dir: Folder with the official files of the dataset, if not the cache.
        save_every: Seconds between checkpoints within an epoch; one follows every epoch.
        track: "tensorboard" or "wandb", to log there too.
        workers: Data loading processes for streamed images.
        load: Reads a dataset into memory; `data.load` by default.
        timeout: Seconds after which a process gives up waiting for the others.
        train: Training images for the data `own:NAME`, as `data.as_images` takes them.
        test: Test images, likewise; without them, a fifth of each class is held out.
        class_names: Names of their classes.
    """
    check_options(save_every, workers, timeout)
    load = given_images(settings, load, train, test, class_names)
    folder = RunFolder(Path(out))
    accelerator = new_accelerator(folder, track, timeout)
    try:
        with explained_losses(accelerator, folder.path, data_dir):
            in_first(accelerator, lambda: folder.open(settings, resume, overwrite))
            result = None if overwrite else in_first(accelerator, lambda: folder.result)
            if result is not None:
                return checked_result(settings, result, folder.path)
            parts = (settings, folder, accelerator, data_dir, save_every, workers, load, resume)
            return begin(Trainer(*parts), resume, overwrite, track)
    finally:
        folder.close()
        # Not `end_training`, which destroys the process group: the next seed needs it.
        for tracker in accelerator.trackers:
            tracker.finish()


def checked_result(settings: TrainSettings, result: dict[str, Any], out: Path) -> dict[str, Any]:
    """The result of a finished run; raises an error if its settings have been edited since."""
    for name in ("model", "data", "recipe", "seed"):
        now = getattr(settings, name)
        if result.get(name, now) != now:
            raise ValueError(
                f"{out / SETTINGS} has {name} {now!r}, but the run was finished with "
                f"{result[name]!r}, as {out / RESULT} says; restore the file, or pass --overwrite "
                "to train again"
            )
    return result


def begin(trainer: Trainer, resume: bool, overwrite: bool, track: str | None) -> dict[str, Any]:
    """Start or resume a run that was accepted, and train to its end."""
    settings, folder, accelerator = trainer.settings, trainer.folder, trainer.accelerator
    if resume:
        trainer.restore()
    in_first(accelerator, lambda: folder.begin(settings, overwrite))
    try:
        if track:
            plain = {k: v for k, v in asdict(settings).items() if not isinstance(v, dict)}
            accelerator.init_trackers("clustercaps", plain)
        return trainer.run()
    except Stopped:
        raise
    except Exception:
        if accelerator.is_main_process:
            folder.discard_unsaved()
        raise


def given_images(
    settings: TrainSettings,
    load: Load | None,
    train: Any,
    test: Any,
    class_names: Sequence[str] | None,
) -> Load | None:
    """What reads the images of a run, if they are given in Python."""
    own = settings.data.startswith("own:")
    if train is None:
        if test is not None or class_names is not None:
            raise ValueError("test and class_names need train")
        return load
    if not own or load is not None:
        raise ValueError(
            f"train is for settings with data 'own:NAME', got {settings.data!r}: "
            f"resolve({settings.model!r}, 'own:mine')"
        )
    return GivenImages(train, test, class_names)


def check_options(save_every: float, workers: int, timeout: float) -> None:
    """Raise an error for options that make no sense."""
    if not (math.isfinite(save_every) and save_every >= 0):
        raise ValueError(f"save_every must be a number of seconds, got {save_every}")
    # More than three months would overflow in some libraries.
    if not 0 < timeout <= 1e7:
        raise ValueError(f"timeout must be a number of seconds, at most 1e7, got {timeout}")
    at_least("workers", workers, 0)


def new_accelerator(folder: RunFolder, track: str | None, timeout: float) -> Accelerator:
    """An Accelerator for one process, or all started by torchrun; uses GPUs if available."""
    return Accelerator(
        cpu=not torch.accelerator.is_available(),
        # The loop handles mixed precision: Accelerate allows only one choice per process.
        mixed_precision="no",
        log_with=track,
        project_dir=str(folder.tracker),
        kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=timeout))],
    )


@atexit.register
def _part() -> None:
    """Destroy the process group at exit."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def train_seeds(
    settings: TrainSettings, seeds: list[int], out: Path | str, **options: Any
) -> dict[str, Any]:
    """Train one run per seed in `out/seed-N`; `out/summary.json` has mean and sd."""
    out = Path(out)
    results = [
        train(replace(settings, seed=seed), out / f"seed-{seed}", **options) for seed in seeds
    ]
    errors = [result["test_error"] for result in results]
    summary = {
        **{key: results[0][key] for key in ("model", "data", "split", "recipe", "epochs")},
        "seeds": seeds,
        "test_errors_percent": errors,
        "mean": statistics.mean(errors),
        "sd": statistics.stdev(errors) if len(errors) > 1 else None,
    }
    write_json(out / "summary.json", summary)
    return summary
