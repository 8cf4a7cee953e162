"""Learning rate schedules, and the exponential moving average of the weights."""

import copy
import math
from fractions import Fraction

import torch
from torch import nn

from clustercaps.training.settings import TrainSettings


def learning_rate(settings: TrainSettings, epoch: int, progress: float) -> float:
    """The learning rate at `progress` (0 to 1) through `epoch` (starting at 0)."""
    at = epoch + progress
    if at < settings.warmup_epochs:
        return settings.lr * at / settings.warmup_epochs
    if settings.schedule == "constant":
        return settings.lr
    if settings.schedule == "exponential":
        falling = settings.lr * math.pow(settings.lr_decay, at / settings.decay_epochs)
        return max(falling, settings.lr_floor)
    if settings.schedule == "step":
        done = epoch / settings.epochs
        falls = sum(done >= drop for drop in drops(settings))
        return settings.lr * math.pow(settings.lr_decay, falls)
    done = (at - settings.warmup_epochs) / (settings.epochs - settings.warmup_epochs)
    if settings.schedule == "linear":
        return settings.lr * (1 - done)
    return settings.lr * 0.5 * (1 + math.cos(math.pi * done))


def drops(settings: TrainSettings) -> list[float]:
    """Fractions of the run at which the learning rate of the "step" schedule drops."""
    # Written as fractions because some, such as 150/350, have no short decimal form.
    return [float(Fraction(part)) for part in settings.drops.split(",") if part]


class WeightAverage:
    """An exponential moving average of a network's weights, stored as a second network.

    The decay is smaller early on, so that the random initial weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Update the average with the weights after `step` (starting at 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for average, weight in zip(self.model.parameters(), model.parameters(), strict=True):
            average.lerp_(weight, 1 - decay)
        # Buffers, such as the running means of batch norm, are averages already.
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(buffer)
