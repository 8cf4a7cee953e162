"""The learning rate of every step, and the running average of the weights."""

import copy
import math

import torch
from torch import nn

from clustercaps.recipes import TrainSettings


def learning_rate(settings: TrainSettings, epoch: int, progress: float) -> float:
    """The learning rate at `progress` (0 to 1) through `epoch` (from 0)."""
    at = epoch + progress
    if at < settings.warmup_epochs:
        return settings.lr * at / settings.warmup_epochs
    if settings.schedule == "step":
        # Three stages, as 300 epochs have in the paper.
        return settings.lr * 0.1 ** (3 * epoch // settings.epochs)
    done = (at - settings.warmup_epochs) / (settings.epochs - settings.warmup_epochs)
    return settings.lr * 0.5 * (1 + math.cos(math.pi * done))


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
