"""Everything that changes while a run goes on, and its way into a checkpoint and back."""

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
    """Where a run stands."""

    # Finished epochs, steps done of the one at hand, steps done in all.
    epoch: int = 0
    step: int = 0
    steps: int = 0
    # Sums over this process's images in the epoch at hand.
    loss: float = 0.0
    errors: int = 0
    seen: int = 0
    # Spent on training steps so far.
    seconds: float = 0.0


class TrainState:
    """A network, its optimiser, the average of its weights, and the progress of its run.

    Args:
        model: With fresh weights.
        settings: Of the run.
        accelerator: Puts the network on the device and ties the processes together.
        prepare: How images are prepared.
        train_images: Images in the training set.
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
        """The network that is tested and kept: the averaged one, if the run averages."""
        return self.model if self.average is None else cast(ImageClassifier, self.average.model)

    def save(self, path: Path) -> None:
        """Write a checkpoint; every process takes part, the first one writes."""
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
        """Go back to where a checkpoint was written."""
        tensors, progress = checkpoint.load_checkpoint(path)

        def part(prefix: str) -> dict[str, Tensor]:
            return checkpoint.without_prefix(prefix, tensors)

        each, rank = part("process"), self.accelerator.process_index
        if len(each["random"]) != self.accelerator.num_processes:
            raise ValueError(
                f"{path} is from a run on {len(each['random'])} processes, and continues only on "
                f"as many; this one has {self.accelerator.num_processes}"
            )
        self.model.load_state_dict(part("model"))
        checkpoint.restore_optimizer(self.optimizer, part("optimizer"))
        if self.average is not None:
            self.average.model.load_state_dict(part("average"))
        self.progress = Progress(**progress)
        loss, errors, seen = each["sums"][rank].tolist()
        self.progress.loss, self.progress.errors, self.progress.seen = loss, int(errors), int(seen)
        checkpoint.restore_random_state(self.accelerator.device, each["random"][rank])
