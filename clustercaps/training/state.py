"""Everything that changes during a run, and how it is saved to and restored from a checkpoint."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import torch
from accelerate import Accelerator
from torch import Tensor

from clustercaps.data import Prepare
from clustercaps.models import ImageClassifier
from clustercaps.training import checkpoint
from clustercaps.training.objective import Objective, new_optimizer
from clustercaps.training.schedule import WeightAverage
from clustercaps.training.settings import TrainSettings


@dataclass
class Progress:
    """The progress of a run."""

    # Finished epochs, steps in the current epoch, steps in total.
    epoch: int = 0
    step: int = 0
    steps: int = 0
    # Sums over this process's images in the current epoch.
    loss: float = 0.0
    errors: int = 0
    seen: int = 0
    # Time spent on training steps.
    seconds: float = 0.0


class TrainState:
    """A network, its optimizer, the average of its weights, and the progress of its run.

    Args:
        model: The network with its initial weights.
        settings: Settings of the run.
        accelerator: Moves the network to the device and synchronises the processes.
        prepare: Preprocessing of the images.
        train_images: Number of images in the training set.
    """

    def __init__(
        self,
        model: ImageClassifier,
        settings: TrainSettings,
        accelerator: Accelerator,
        prepare: Prepare,
        train_images: int,
    ) -> None:
        self.accelerator = accelerator
        self.model = model.to(accelerator.device)
        self.average = WeightAverage(model, settings.average) if settings.average else None
        # `parallel` is the same network with its loss; its gradients are averaged over processes.
        self.parallel, self.optimizer = accelerator.prepare(
            Objective(model, settings, prepare, train_images), new_optimizer(model, settings)
        )
        self.progress = Progress()

    @property
    def tested(self) -> ImageClassifier:
        """The network that is tested and saved: the averaged one, if the run averages."""
        return self.model if self.average is None else cast(ImageClassifier, self.average.model)

    def save(self, path: Path) -> None:
        """Write a checkpoint; every process must call this, the main process writes."""
        device, progress = self.accelerator.device, self.progress
        random = checkpoint.random_state(device).to(device).unsqueeze(0)
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
            checkpoint.save_checkpoint(path, tensors, asdict(progress))

    def restore(self, path: Path) -> None:
        """Restore the state from a checkpoint."""
        tensors, progress = checkpoint.load_checkpoint(path)

        def part(prefix: str) -> dict[str, Tensor]:
            return checkpoint.without_prefix(prefix, tensors)

        each, rank = part("process"), self.accelerator.process_index
        if len(each["random"]) != self.accelerator.num_processes:
            raise ValueError(
                f"{path} was written by {len(each['random'])} processes; resume with the same "
                f"number, got {self.accelerator.num_processes}"
            )
        self.model.load_state_dict(part("model"))
        checkpoint.restore_optimizer(self.optimizer, part("optimizer"))
        if self.average is not None:
            self.average.model.load_state_dict(part("average"))
        self.progress = Progress(**progress)
        loss, errors, seen = each["sums"][rank].tolist()
        self.progress.loss, self.progress.errors, self.progress.seen = loss, int(errors), int(seen)
        checkpoint.restore_random_state(self.accelerator.device, each["random"][rank])
