"""A registered network: its class, settings and training recipes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clustercaps.models.base import ImageClassifier
from clustercaps.utils.errors import unknown

# Settings of a training run that differ from their defaults.
Recipe = Mapping[str, Any]
RECIPE_NAMES = ("paper", "fast", "strong")

CLUSTER_ROUTING: dict[str, Recipe] = {
    # As in the paper; the weight decay is from the released code.
    "paper": {
        "epochs": 300,
        "batch_size": 64,
        "lr": 0.1,
        "schedule": "step",
        "weight_decay": 5e-4,
    },
    # For short runs; docs/training.md explains how it was chosen.
    "fast": {
        "epochs": 12,
        "batch_size": 64,
        "lr": 0.03,
        "schedule": "cosine",
        "warmup_epochs": 0.5,
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": 5e-4,
        "average": 0.998,
    },
    # The lowest error in a night on two cores; chosen with `clustercaps reproduce recipe`.
    "strong": {
        "epochs": 60,
        "batch_size": 64,
        "optimizer": "muon",
        "lr": 0.02,
        "adamw_lr": 2e-3,
        "schedule": "cosine",
        "warmup_epochs": 0.5,
        "momentum": 0.95,
        "nesterov": True,
        "weight_decay": 0.02,
        "label_smoothing": 0.1,
        "average": 0.999,
    },
}
# What changes on images of one's own: the head reads more positions, and a photo folder is small.
OWN_DATA: dict[str, Recipe] = {
    "paper": {"scale_head": True},
    "fast": {"scale_head": True},
    # Chosen with `clustercaps reproduce own-data`; small folders get more epochs.
    "strong": {"scale_head": True, "epochs": 30, "batch_size": 32},
}
CLUSTER_ROUTING_PAPER = (
    'Zhao and Cheng, "Capsule networks with non-iterative cluster routing", Neural Networks 143, '
    "2021"
)
# Our choice, for papers whose recipe is unknown.
UNKNOWN_RECIPE: Recipe = {
    "epochs": 100,
    "batch_size": 128,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "exponential",
    "lr_decay": 0.95,
    "decay_epochs": 1.0,
    "weight_decay": 0.0,
}


@dataclass(frozen=True)
class Preset:
    """A network class with its settings.

    Attributes:
        network: The class.
        summary: A short description.
        settings: Arguments of the class that differ from its defaults.
        recipe: The recipe of its paper; None for the networks of the cluster routing paper.
        recipes: Recipes for datasets on which its paper uses another one.
        reconstruction: Whether paper or code leave parts open that we filled in; no published
            number is claimed for it.
        paper: Authors, title, venue and year of the publication that introduced it.
        choices: What paper and code leave open and how we filled it in, or where the two disagree;
            empty if nothing is known.
        img_size: Height and width of the images that it was designed for.
        data: The datasets that its paper reports on, among those of this library.
        sizes: Image sizes of datasets where it is not `img_size`; "own" is for one's own images.
        own_settings: Arguments of the class that also differ on one's own images.
    """

    network: type[ImageClassifier]
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe | None = None
    reconstruction: bool = False
    paper: str = field(kw_only=True)
    choices: str = field(default="", kw_only=True)
    img_size: int = field(kw_only=True)
    data: tuple[str, ...] = field(kw_only=True)
    sizes: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    recipes: Mapping[str, Recipe] = field(default_factory=dict, kw_only=True)
    own_settings: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    def size_for(self, data: str) -> int:
        """Image size for a dataset, the published one if there is one."""
        return self.sizes.get(data, self.img_size)

    @property
    def recipe_names(self) -> tuple[str, ...]:
        """The names that `get_recipe` accepts for this network."""
        return tuple(name for name in RECIPE_NAMES if self.recipe is None or name != "strong")

    @property
    def default_recipe(self) -> str:
        """The recipe that `train` uses by default."""
        return "fast" if self.recipe is None else "paper"

    def recipe_for(self, data: str) -> str:
        """The recipe that `train` uses for a dataset; "own" is one's own images."""
        return "strong" if data == "own" and self.recipe is None else self.default_recipe

    def get_recipe(self, name: str, data: str = "") -> Recipe:
        """A recipe by name, for a dataset.

        "paper" is the recipe of the network's paper. For networks of other papers, "fast" is the
        same with few epochs, and there is no "strong".
        """
        if name not in RECIPE_NAMES:
            raise ValueError(unknown("recipe", name, RECIPE_NAMES))
        if self.recipe is None:
            recipe = {**CLUSTER_ROUTING[name], **(OWN_DATA[name] if data == "own" else {})}
            if not self.network.takes_label_smoothing():
                recipe.pop("label_smoothing", None)
            return recipe
        if name not in self.recipe_names:
            raise ValueError(
                "recipe 'strong' is only for the networks of cluster routing; use 'paper' or 'fast'"
            )
        own = self.recipes.get(data, self.recipe)
        return {**own, **({"epochs": FAST_EPOCHS} if name == "fast" else {})}


FAST_EPOCHS = CLUSTER_ROUTING["fast"]["epochs"]
