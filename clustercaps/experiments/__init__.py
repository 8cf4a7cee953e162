"""Every table and figure of the paper, by name: one file per experiment.

A new experiment is a file with an `EXPERIMENT` (see `cells.Experiment`) and a line in
`EXPERIMENTS`. Imports nothing heavy, so that `clustercaps reproduce --help` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from clustercaps.utils.errors import unknown

if TYPE_CHECKING:
    from clustercaps.experiments.harness.cells import Experiment

# In the order of docs/reproduction.md.
EXPERIMENTS = {
    "parameters": "parameter counts of every network next to the paper's; nothing is trained",
    "recipe": "optimizers and augmentation for M1, on a validation split of Fashion-MNIST",
    "precision": "M1 trained in bfloat16 and in float32",
    "own-data": "defaults for images of one's own, and networks of equal time",
    "classification": "M1-M4, S1-S4 and the CNN on four datasets: the paper's main table",
    "kd-grid": "votes K and capsule dimension D on CIFAR-10",
    "ablation": "data-dependent against constant routing weights",
    "routing-weights": "routing weights by class, and a test that they depend on the image",
    "affine": "images reconstructed from rotated, flipped, shifted and scaled channels",
    "disentangle": "what each dimension of a class capsule changes in the reconstructed digit",
    "viewpoints": "accuracy on novel azimuths and elevations, networks matched on familiar ones",
    "imagenet": "the ImageNet network: top-1 and top-5 accuracy, and the cost of the full run",
    "peers": "every capsule system, with equally many images or with equal training time",
}
BUDGETS = {
    "smoke": "seconds: checks that the code runs",
    "quick": "a few minutes on two cores: fewer images, epochs and networks",
    "night": "a few hours on two cores: full datasets, the strong recipe where there is one",
    "full": "the paper's exact protocol",
}


def get_experiment(name: str) -> "Experiment":
    """The experiment with this name."""
    if name not in EXPERIMENTS:
        raise KeyError(unknown("experiment", name, EXPERIMENTS))
    module = import_module(f"clustercaps.experiments.{name.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    return experiment
