"""Deterministic, resumable training.

Exports settings (`resolve` turns a recipe into `TrainSettings`), runs (`train`, `train_seeds`, and
`Stopped` for a run ended by a signal), the files of a run (`RunFolder`, `Trained`, `draw_run`) and
testing (`score`, `Score`):

    settings = cc.training.resolve("m1", "fashion-mnist-mini", "fast", epochs=2)
    result = cc.training.train(settings, "runs/m1")

Names are imported on first use, so that the settings can be read without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from clustercaps.utils.extras import naming_extra

if TYPE_CHECKING:
    from clustercaps.training.figures import draw_run
    from clustercaps.training.finished import Trained
    from clustercaps.training.run import train, train_seeds
    from clustercaps.training.run_folder import RunFolder
    from clustercaps.training.scoring import Score, score
    from clustercaps.training.settings import RECIPE_NAMES, TrainSettings, resolve
    from clustercaps.training.signals import Stopped

__all__ = [
    "RECIPE_NAMES",
    "RunFolder",
    "Score",
    "Stopped",
    "TrainSettings",
    "Trained",
    "draw_run",
    "resolve",
    "score",
    "train",
    "train_seeds",
]

# Public name -> the module that defines it. No module may have the name of a function here: once
# imported, it would replace the function.
_HOME = {
    "RECIPE_NAMES": "settings",
    "RunFolder": "run_folder",
    "Score": "scoring",
    "Stopped": "signals",
    "TrainSettings": "settings",
    "Trained": "finished",
    "draw_run": "figures",
    "resolve": "settings",
    "score": "scoring",
    "train": "run",
    "train_seeds": "run",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        with naming_extra():
            return getattr(import_module(f"clustercaps.training.{_HOME[name]}"), name)
    raise AttributeError(f"module 'clustercaps.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
