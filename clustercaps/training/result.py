"""The result of a run."""

from typing import Any

from clustercaps.models.registry import most_children
from clustercaps.training.scoring import Score
from clustercaps.training.settings import TrainSettings
from clustercaps.training.state import TrainState


def result_of(
    settings: TrainSettings, state: TrainState, scores: dict[str, Score]
) -> dict[str, Any]:
    """What the result says about the run, its network and its last test."""
    tested = scores["test"]
    return {
        "model": settings.model,
        "data": settings.data,
        "split": "validation" if settings.validate else "test",
        "recipe": settings.recipe,
        "epochs": settings.epochs,
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
    }
