"""Everything that changes during a run, and how it is saved to and restored from a checkpoint."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor

from clustercaps.data import Prepare
from clustercaps.models import ImageClassifier
from clustercaps.training import checkpoint
from clustercaps.training.consistency import check_metrics, check_optimizer, checked_progress
from clustercaps.training.identity import Identity
from clustercaps.training.objective import Objective, new_optimizer
from clustercaps.training.processes import exchange_device
from clustercaps.training.progress import Progress
from clustercaps.training.schedule import WeightAverage
from clustercaps.utils.tensor_files import misfits, not_finite


class TrainState:
    """A network, its optimizer, the average of its weights, and the progress of its run.

    Args:
        model: The network with its initial weights.
        identity: Settings and data of the run.
        accelerator: Moves the network to the device and synchronises the processes.
        prepare: Preprocessing of the images.
        train_images: Number of images in the training set.
        start: Where the weights come from, if not from the seed (`start_from`).
    """

    def __init__(
        self,
        model: ImageClassifier,
        identity: Identity,
        accelerator: Accelerator,
        prepare: Prepare,
        train_images: int,
        start: dict[str, Any] | None = None,
    ) -> None:
        self.accelerator, self.identity = accelerator, identity
        settings = identity.settings
        self.model = model.to(accelerator.device)
        self.average = WeightAverage(model, settings.average) if settings.average else None
        # `parallel` is the same network with its loss; its gradients are averaged over processes.
        self.parallel, self.optimizer = accelerator.prepare(
            Objective(model, settings, prepare, train_images), new_optimizer(model, settings)
        )
        self.progress, self.start = Progress(), start
        # Metrics of the last finished epoch.
        self.last_epoch: dict[str, Any] | None = None

    @property
    def tested(self) -> ImageClassifier:
        """The network that is tested and saved: the averaged one, if the run averages."""
        return self.model if self.average is None else cast(ImageClassifier, self.average.model)

    def save(self, path: Path) -> None:
        """Write a checkpoint; every process must call this, the main process writes."""
        device, progress = exchange_device(self.accelerator), self.progress
        random = checkpoint.random_state(self.accelerator.device).to(device).unsqueeze(0)
        sums = [[progress.loss, progress.errors, progress.seen]]
        each = {
            "random": self.accelerator.gather(random),
            "sums": self.accelerator.gather(torch.tensor(sums, dtype=torch.float64, device=device)),
        }
        if self.accelerator.is_main_process:
            tensors = checkpoint.with_prefix("model", self.model.state_dict())
            memory = checkpoint.optimizer_tensors(self.optimizer)
            tensors |= checkpoint.with_prefix("optimizer", memory)
            if self.average is not None:
                tensors |= checkpoint.with_prefix("average", self.average.model.state_dict())
            tensors |= checkpoint.with_prefix("process", each)
            run = {**self.identity.to_plain(), "last_epoch": self.last_epoch, "start": self.start}
            checkpoint.save_checkpoint(path, tensors, asdict(progress), run)

    def not_finite(self) -> str | None:
        """The first weight or optimizer state with NaN or infinity; None if there is none."""
        optimizer = checkpoint.optimizer_tensors(self.optimizer)
        tested = self.tested.state_dict()
        return not_finite(self.model.state_dict()) or not_finite(optimizer) or not_finite(tested)

    def restore(self, path: Path, steps_per_epoch: int, metrics: list[dict[str, Any]]) -> None:
        """Restore the state from a checkpoint; refuses one that does not belong to this run.

        Args:
            path: The checkpoint.
            steps_per_epoch: Steps of an epoch.
            metrics: What `metrics.jsonl` has.
        """
        tensors, state, run = checkpoint.load_checkpoint(path)
        processes = self.accelerator.num_processes
        try:
            found = "" if run is None else self.identity.differences(run, str(path))
            if found:
                raise ValueError(f"it belongs to another run: {found}")
            progress = checked_progress(state, self.identity.settings, steps_per_epoch)
            check_metrics(len(metrics), progress.epoch, run is None)
            self._check_tensors(tensors, progress.steps)
        except ValueError as error:
            raise ValueError(
                f"{path} does not fit this run: {error}; {checkpoint.ADVICE}"
            ) from error
        each = checkpoint.without_prefix("process", tensors)
        if len(each["random"]) != processes:
            raise ValueError(
                f"{path} was written by {len(each['random'])} processes; resume with the same "
                f"number, got {processes}"
            )
        self.last_epoch = metrics[-1] if run is None and metrics else (run or {}).get("last_epoch")
        self.start = (run or {}).get("start")
        self._apply(tensors, progress, path)

    def _check_tensors(self, tensors: dict[str, Tensor], steps: int) -> None:
        """Raise an error if names or shapes of the tensors are not those of this state."""
        wanted = checkpoint.with_prefix("model", self.model.state_dict())
        if self.average is not None:
            wanted |= checkpoint.with_prefix("average", self.average.model.state_dict())
        memory = checkpoint.without_prefix("optimizer", tensors)
        rest = {n: t for n, t in tensors.items() if n.split(".")[0] not in ("optimizer", "process")}
        problems = misfits(wanted, rest)
        if problems:
            raise ValueError(problems)
        settings = self.identity.settings
        # Plain SGD keeps nothing between steps.
        keeps = settings.optimizer != "sgd" or settings.momentum > 0
        check_optimizer(self.optimizer, memory, expected=keeps and steps > 0)
        each = checkpoint.without_prefix("process", tensors)
        if each.keys() != {"random", "sums"} or each["sums"].shape != (len(each["random"]), 3):
            raise ValueError("its state of each process is incomplete")

    def _apply(self, tensors: dict[str, Tensor], progress: Progress, path: Path) -> None:
        self.model.load_state_dict(checkpoint.without_prefix("model", tensors))
        memory = checkpoint.without_prefix("optimizer", tensors)
        checkpoint.restore_optimizer(self.optimizer, memory)
        if self.average is not None:
            average = checkpoint.without_prefix("average", tensors)
            self.average.model.load_state_dict(average)
        rank = self.accelerator.process_index
        loss, errors, seen = tensors["process.sums"][rank].tolist()
        progress.loss, progress.errors, progress.seen = loss, int(errors), int(seen)
        self.progress = progress
        try:
            random = tensors["process.random"][rank]
            checkpoint.restore_random_state(self.accelerator.device, random)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"{path} does not fit this run: its random state is invalid ({error}); "
                f"{checkpoint.ADVICE}"
            ) from error
