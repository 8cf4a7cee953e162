"""Whole runs: one, or one per seed."""

import atexit
import json
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from clustercaps.training.batches import Load
from clustercaps.training.loop import Trainer, new_accelerator
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.settings import TrainSettings
from clustercaps.utils.files import write_atomically


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
) -> dict[str, Any]:
    """Run to the end and return the result, which is also in `out/result.json`.

    Args:
        settings: What to do.
        out: The run's folder.
        resume: Continue the run in `out`; a finished one is left as it is.
        overwrite: Delete the run in `out` first.
        data_dir: Folder with the data's official files, if not the cache.
        save_every: Seconds between checkpoints within an epoch; there is one after every epoch.
        track: "tensorboard" or "wandb", to log there as well.
        workers: Processes that read streamed images.
        load: What reads a set held in memory, if not `data.load`.
    """
    folder = RunFolder(Path(out))
    accelerator = new_accelerator(folder, track)
    refusal: str | None = None
    if accelerator.is_main_process:
        try:
            folder.open(settings, resume, overwrite)
        except ValueError as error:
            if accelerator.num_processes == 1:
                raise
            refusal = str(error)
    refusal = _from_first(refusal, accelerator.num_processes)
    if refusal is not None:
        raise ValueError(refusal)
    try:
        if folder.result is not None:
            return folder.result
        if track:
            plain = {k: v for k, v in asdict(settings).items() if not isinstance(v, dict)}
            accelerator.init_trackers("clustercaps", plain)
        trainer = Trainer(settings, folder, accelerator, data_dir, save_every, workers, load)
        return trainer.run()
    finally:
        folder.close()
        # Not `end_training`, which parts the processes: the next seed needs them together.
        for tracker in accelerator.trackers:
            tracker.finish()


@atexit.register
def _part() -> None:
    """Let the processes that torchrun started go, at the end of the program."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _from_first(message: str | None, processes: int) -> str | None:
    """What the first process says, in every process."""
    if processes == 1:
        return message
    from accelerate.utils import broadcast_object_list

    said = [message]
    broadcast_object_list(said)
    return said[0]


def train_seeds(
    settings: TrainSettings, seeds: list[int], out: Path | str, **options: Any
) -> dict[str, Any]:
    """One run per seed, in `out/seed-N`; mean and standard deviation go to `out/summary.json`."""
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
    write_atomically(out / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary
