"""Learning rate schedules, and the exponential moving average of the weights."""

import copy
import math
from fractions import Fraction

import torch
from torch import nn

from clustercaps.training.settings import TrainSettings

# Of Adam and its relatives, unless a cycle moves it.
BETA1 = 0.9


def set_rates(
    optimizer: torch.optim.Optimizer,
    settings: TrainSettings,
    epoch: int,
    progress: float,
    steps: int,
) -> float:
    """Give an optimizer what the schedule says for the next step; returns the learning rate."""
    rate = learning_rate(settings, epoch, progress, steps)
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("lr_scale", 1.0)
        if settings.beta1_low:
            group["betas"] = (adam_beta1(settings, epoch, progress), group["betas"][1])
    return rate


def learning_rate(settings: TrainSettings, epoch: int, progress: float, steps: int = 0) -> float:
    """The learning rate at `progress` (0 to 1) through `epoch` (from 0), after `steps` in all."""
    return _scheduled(settings, epoch, progress) / (1 + settings.step_decay * steps)


def adam_beta1(settings: TrainSettings, epoch: int, progress: float) -> float:
    """Adam's beta1, which is lowest where the learning rate is highest, if it moves at all."""
    if not settings.beta1_low:
        return BETA1
    low, rate = settings.lr_floor, _scheduled(settings, epoch, progress)
    height = (rate - low) / (settings.lr - low)
    return settings.beta1_low + (BETA1 - settings.beta1_low) * (1 - height)


def _scheduled(settings: TrainSettings, epoch: int, progress: float) -> float:
    at = epoch + progress
    warmup = settings.warmup
    low, span = settings.lr_floor, settings.lr - settings.lr_floor
    if at < warmup:
        return low + span * at / warmup
    if settings.schedule == "constant":
        return settings.lr
    if settings.schedule == "exponential":
        return max(settings.lr * math.pow(settings.lr_decay, at / settings.decay_epochs), low)
    if settings.schedule == "step":
        done = epoch / settings.epochs
        falls = sum(done >= drop for drop in drops(settings))
        return settings.lr * math.pow(settings.lr_decay, falls)
    done = (at - warmup) / (settings.epochs - warmup)
    if settings.schedule == "linear":
        return low + span * (1 - done)
    return low + span * 0.5 * (1 + math.cos(math.pi * done))


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
