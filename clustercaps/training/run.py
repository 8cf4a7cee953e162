"""Training runs: one, or one per seed."""

import atexit
import json
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from clustercaps.training.batches import Load
from clustercaps.training.loop import Trainer
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
    """
    folder = RunFolder(Path(out))
    accelerator = new_accelerator(folder, track)
    _open(folder, accelerator, settings, resume, overwrite)
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
        # Not `end_training`, which destroys the process group: the next seed needs it.
        for tracker in accelerator.trackers:
            tracker.finish()


def _open(
    folder: RunFolder,
    accelerator: Accelerator,
    settings: TrainSettings,
    resume: bool,
    overwrite: bool,
) -> None:
    """Open the folder in the main process; all processes raise its error."""
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


def new_accelerator(folder: RunFolder, track: str | None) -> Accelerator:
    """An Accelerator for one process, or all started by torchrun; uses GPUs if available."""
    return Accelerator(
        cpu=not torch.accelerator.is_available(),
        # The loop handles mixed precision: Accelerate allows only one choice per process.
        mixed_precision="no",
        log_with=track,
        project_dir=str(folder.tracker),
    )


@atexit.register
def _part() -> None:
    """Destroy the process group at exit."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _from_first(message: str | None, processes: int) -> str | None:
    """Broadcast a message from the main process."""
    if processes == 1:
        return message
    from accelerate.utils import broadcast_object_list

    said = [message]
    broadcast_object_list(said)
    return said[0]


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
    write_atomically(out / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary
