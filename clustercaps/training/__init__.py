"""Deterministic, resumable training: settings, the loop, checkpoints, tests and figures of runs.

Names are imported on first use, so that the settings can be read without waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clustercaps.training.run import train, train_seeds
    from clustercaps.training.score import Score, score
    from clustercaps.training.settings import RECIPE_NAMES, TrainSettings, resolve

__all__ = [
    "RECIPE_NAMES",
    "Score",
    "TrainSettings",
    "resolve",
    "score",
    "train",
    "train_seeds",
]

# Public name -> the module that defines it.
_HOME = {
    "RECIPE_NAMES": "settings",
    "Score": "score",
    "TrainSettings": "settings",
    "resolve": "settings",
    "score": "score",
    "train": "run",
    "train_seeds": "run",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"clustercaps.training.{_HOME[name]}"), name)
    raise AttributeError(f"module 'clustercaps.training' has no attribute {name!r}")
