"""The result of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from clustercaps.models.registry import most_children
from clustercaps.training.scoring import Score
from clustercaps.training.settings import TrainSettings
from clustercaps.training.state import TrainState
from clustercaps.utils.machine import machine


def result_of(
    settings: TrainSettings,
    state: TrainState,
    scores: Mapping[str, Score],
    class_names: Sequence[str],
    train_images: int,
    processes: int,
) -> dict[str, Any]:
    """What `result.json` says about the run, its network and its last test."""
    tested = scores["test"]
    result = {
        "model": settings.model,
        "data": settings.data,
        "split": "validation" if settings.validate else "test",
        "recipe": settings.recipe,
        "epochs": state.progress.epoch,
        "seed": settings.seed,
        "test_error": tested.error,
        "test_errors": tested.errors,
        "test_images": tested.total,
        "top5_error": tested.top5_error,
        "test_loss": tested.loss,
        "weights": "last" if state.average is None else "average at the last epoch",
        "img_size": settings.side,
        "parameters": sum(p.numel() for p in state.model.parameters()),
        "children": most_children(state.model),
        "train_images": train_images,
        "train_seconds": round(state.progress.seconds, 1),
        "processes": processes,
        "class_names": list(class_names),
        **machine(),
    }
    if "novel" in scores:
        result |= {"novel_error": scores["novel"].error, "novel_images": scores["novel"].total}
    if settings.early_stop:
        result |= {"planned_epochs": settings.epochs, "early_stop": settings.early_stop}
    if state.start is not None:
        result |= {**state.start, "frozen": settings.freeze}
    return result


def stale_epochs(metrics: Sequence[Mapping[str, Any]]) -> int:
    """Epochs since the error on the held-out images was lowest for the first time."""
    tested = [line for line in metrics if "test_error" in line]
    if not tested:
        return 0
    best = min(tested, key=lambda line: line["test_error"])
    return int(metrics[-1]["epoch"] - best["epoch"])
