"""A learning-rate range test: train with a rate that rises with every step, and watch the loss.

Smith, "Cyclical learning rates for training neural networks", WACV 2017. The network is a new one,
which is thrown away; nothing is written.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustercaps.training.batches import Batch
from clustercaps.training.initial import set_training
from clustercaps.training.loop import Trainer
from clustercaps.training.run import new_accelerator
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.settings import TrainSettings
from clustercaps.utils.errors import at_least

# Weight of the past in the smoothed loss.
SMOOTHING = 0.9
# The test ends when the smoothed loss is this many times its minimum.
DIVERGED = 2.0
# The suggestion is this fraction of the rate with the lowest smoothed loss: the test gives every
# rate one step only, and a run has to stand its rate for many.
SAFETY = 0.1


@dataclass(frozen=True)
class RangeTest:
    """What a range test measured.

    Attributes:
        rates: Learning rate of each step.
        losses: Mean loss of the images of each step, before it.
        smoothed: Their moving average.
        diverged: Whether the test ended because the loss rose or was not finite.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    diverged: bool

    @property
    def lowest(self) -> float:
        """The rate at which the smoothed loss is lowest."""
        return self.rates[self.smoothed.index(min(self.smoothed))]

    @property
    def suggestion(self) -> float:
        """A peak learning rate for a run."""
        return SAFETY * self.lowest

    def to_plain(self) -> dict[str, Any]:
        """The test as JSON can hold it."""
        return {
            "suggested_lr": self.suggestion,
            "lr_of_lowest_loss": self.lowest,
            "diverged": self.diverged,
            "lr": list(self.rates),
            "loss": list(self.losses),
            "smoothed_loss": list(self.smoothed),
        }


def range_test(
    settings: TrainSettings,
    low: float,
    high: float,
    steps: int = 100,
    data_dir: str | None = None,
    workers: int = 2,
) -> RangeTest:
    """Train for some steps with rates from `low` to `high`, equally spaced on a log scale.

    Args:
        settings: Settings of the run whose rate is wanted; with Muon, the rate of the AdamW
            parameters rises in proportion.
        low: First learning rate.
        high: Last learning rate.
        steps: Number of steps; more than the training set has batches begin again.
        data_dir: Folder with the official files of the dataset, if not the cache.
        workers: Data loading processes for streamed images.
    """
    at_least("steps", steps, 10)
    if not 0 < low < high < math.inf:
        raise ValueError(f"expected 0 < --from < --to, got {low} and {high}")
    # A folder that is never opened writes nothing.
    folder = RunFolder(Path("lr-find"))
    accelerator = new_accelerator(folder, None, timeout=1800.0)
    if accelerator.num_processes > 1:
        raise ValueError("lr-find runs in one process; start it without torchrun")
    trainer = Trainer(settings, folder, accelerator, data_dir, workers=workers)
    state, losses, smoothed = trainer.state, [], []
    set_training(state.parallel)
    rates = [low * (high / low) ** (step / (steps - 1)) for step in range(steps)]
    diverged = False
    for rate, parts in zip(rates, endless(trainer), strict=False):
        for group in state.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        before, images = state.progress.loss, parts[0].total
        diverged = not trainer._step(parts)
        if diverged:
            break
        losses.append((state.progress.loss - before) / images)
        smoothed.append(moving_average(losses))
        if smoothed[-1] > DIVERGED * min(smoothed):
            diverged = True
            break
    if not losses:
        raise ValueError(f"the loss is not finite at the rate {low:g}; pass a smaller --from")
    return RangeTest(tuple(rates[: len(losses)]), tuple(losses), tuple(smoothed), diverged)


def moving_average(values: Sequence[float]) -> float:
    """The exponential moving average of the values, without a bias towards 0."""
    weights = [SMOOTHING ** (len(values) - 1 - i) for i in range(len(values))]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def endless(trainer: Trainer) -> Iterator[list[Batch]]:
    """The training batches of one epoch after another."""
    epoch = 0
    while True:
        yield from trainer.batches.epoch(epoch)
        epoch += 1
