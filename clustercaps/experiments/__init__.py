"""Every table and figure of the paper, by name: one file per experiment.

A new experiment is a file with an `EXPERIMENT` (see `cells.Experiment`) and a line in
`EXPERIMENTS`. Imports nothing heavy, so that `clustercaps reproduce --help` answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from clustercaps.utils.errors import unknown

if TYPE_CHECKING:
    from clustercaps.experiments.harness.cells import Experiment

# In the order of docs/reproduction.md.
EXPERIMENTS = {
    "parameters": "parameters of every network beside the paper's counts; nothing is trained",
    "recipe": "optimisers and augmentation for M1, on the validation fifth of Fashion-MNIST",
    "classification": "M1-M4, S1-S4 and the CNN on four image sets: the paper's main table",
    "kd-grid": "votes K and capsule size D on CIFAR-10",
    "ablation": "routing weights that depend on the image, against constant ones",
    "routing-weights": "bars of routing weights by class, and a test that they follow the image",
    "affine": "images drawn from rotated, flipped, shifted and scaled channels",
    "disentangle": "what each dimension of a class capsule changes in the drawn digit",
    "viewpoints": "novel azimuths and elevations, networks matched on familiar ones",
    "imagenet": "the ImageNet network: top-1 and top-5, and what the whole run would cost",
}
BUDGETS = {
    "smoke": "seconds: does it work at all?",
    "quick": "some minutes on two cores: fewer images, epochs and networks",
    "night": "some hours on two cores: all images of the real datasets, the strong recipe",
    "full": "the paper's protocol to the letter",
}


def get_experiment(name: str) -> "Experiment":
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise KeyError(unknown("experiment", name, EXPERIMENTS))
    module = import_module(f"clustercaps.experiments.{name.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    return experiment
