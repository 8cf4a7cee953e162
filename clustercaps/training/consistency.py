"""Checks of a checkpoint before its run goes on: progress, sizes, optimizer state."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from clustercaps.training.progress import Progress
from clustercaps.training.settings import TrainSettings


def checked_progress(
    state: Mapping[str, Any], settings: TrainSettings, steps_per_epoch: int
) -> Progress:
    """The progress in a checkpoint; raises an error if no run with these settings can have it."""
    wanted = {field.name: field.type for field in fields(Progress)}
    if state.keys() != wanted.keys():
        raise ValueError(f"its state has {sorted(state)}, expected {sorted(wanted)}")
    for name, value in state.items():
        number = type(value) in ((int,) if wanted[name] is int else (int, float))
        if not number or (name != "loss" and value < 0) or not math.isfinite(value):
            raise ValueError(f"its {name} is {value!r}")
    progress = Progress(**state)
    if progress.epoch > settings.epochs or (progress.epoch == settings.epochs and progress.step):
        raise ValueError(
            f"it is in epoch {progress.epoch + 1}, step {progress.step}, but the run has "
            f"{settings.epochs} epochs"
        )
    if (
        progress.step > steps_per_epoch
        or progress.steps != progress.epoch * steps_per_epoch + progress.step
    ):
        raise ValueError(
            f"it counts {progress.steps} steps, {progress.step} of them in epoch "
            f"{progress.epoch + 1}, but the run has {steps_per_epoch} steps in an epoch"
        )
    return progress


def check_optimizer(optimizer: Optimizer, memory: Mapping[str, Tensor], expected: bool) -> None:
    """Raise an error unless the optimizer can go on from this state.

    Args:
        optimizer: The optimizer.
        memory: Its state, as `optimizer_tensors` names it.
        expected: Whether it has a state after the steps of the run.
    """
    groups = [group for group in optimizer.param_groups for _ in group["params"]]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    names: dict[int, set[str]] = {}
    for name, tensor in memory.items():
        index, _, what = name.partition(".")
        if not index.isdigit() or int(index) >= len(parameters):
            raise ValueError(f"its optimizer state {name} belongs to no parameter")
        names.setdefault(int(index), set()).add(what)
        if tensor.numel() != 1 and tensor.shape != parameters[int(index)].shape:
            raise ValueError(f"its optimizer state {name} has shape {tuple(tensor.shape)}")
    if expected != bool(names):
        raise ValueError(f"its optimizer state {'is missing' if expected else 'is not expected'}")
    # Parameters without a gradient have no state; all others of a group have the same.
    for number, found in names.items():
        first = next(i for i in sorted(names) if groups[i] is groups[number])
        if found != names[first]:
            raise ValueError(f"its optimizer state of parameters {first} and {number} differs")


def check_metrics(lines: int, epoch: int, older: bool) -> None:
    """Raise an error unless `metrics.jsonl` has as many lines as the checkpoint has epochs.

    Args:
        lines: Lines of `metrics.jsonl`.
        epoch: Finished epochs in the checkpoint.
        older: Whether the checkpoint is of version 0.2.0 or earlier, which wrote the line first;
            now the checkpoint comes first and has a copy of the line.
    """
    allowed = (epoch, epoch + 1) if older else (epoch - 1, epoch)
    if lines not in allowed:
        raise ValueError(f"it has finished {epoch} epochs, but metrics.jsonl has {lines}")
