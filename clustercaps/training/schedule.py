"""The learning rate of every step, and the running average of the weights."""

import copy
import math
from fractions import Fraction

import torch
from torch import nn

from clustercaps.training.settings import TrainSettings


def learning_rate(settings: TrainSettings, epoch: int, progress: float) -> float:
    """The learning rate at `progress` (0 to 1) through `epoch` (from 0)."""
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
    """Shares of the run after which the learning rate of the schedule "step" drops."""
    # A share may stand as a fraction: 150/350 has no short decimal form.
    return [float(Fraction(part)) for part in settings.drops.split(",") if part]


class WeightAverage:
    """An exponential running average of a network's weights, kept as a second network.

    Early on the decay is smaller, so that the first random weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after `step` (from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for average, weight in zip(self.model.parameters(), model.parameters(), strict=True):
            average.lerp_(weight, 1 - decay)
        # Buffers, such as the running means of batch norm, are averages already.
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(buffer)
