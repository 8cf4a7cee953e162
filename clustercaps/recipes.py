"""What a run does: every setting, the two recipes, and what is refused before any work starts.

Imports nothing heavy, so that `clustercaps train --help` answers at once.
"""

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any

from clustercaps.errors import at_least, unknown


def setting(help: str, default: Any = dataclasses.MISSING) -> Any:
    """A field with the sentence that `--help` shows."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class TrainSettings:
    """All that decides the outcome of a run."""

    model: str = setting("a name from `clustercaps models`")
    data: str = setting("a name from `clustercaps data list`, or folder:PATH")
    recipe: str = setting("what the settings below start from: paper or fast")
    epochs: int = setting("passes over the training images")
    batch_size: int = setting("images in a step, over all processes", 64)
    lr: float = setting("peak learning rate", 0.1)
    schedule: str = setting("step: x0.1 at every third of the run; cosine: to 0", "step")
    warmup_epochs: float = setting("epochs in which the learning rate rises from 0", 0.0)
    momentum: float = setting("momentum of SGD", 0.0)
    nesterov: bool = setting("Nesterov's form of momentum", False)
    weight_decay: float = setting("L2 penalty on all parameters", 5e-4)
    label_smoothing: float = setting("probability spread over all classes", 0.0)
    clip_norm: float = setting("largest norm of the gradient; 0 for no limit", 0.0)
    average: float = setting(
        "decay of a running average of the weights, which is then what is tested; 0 for none", 0.0
    )
    augment: bool = setting("the paper's random jitter, crop and flip", True)
    validate: bool = setting("train on four fifths and test on the validation fifth", False)
    limit: int = setting("train on this many images, evenly from all classes; 0 for all", 0)
    seed: int = setting("seed of weights, order and augmentation", 0)
    precision: str = setting("float32 or bf16 (mixed)", "float32")
    accumulate: int = setting("parts that a step's batch is computed in, to save memory", 1)
    test_every: int = setting("epochs between tests; the last epoch is always tested", 1)
    img_size: int = setting("side of streamed images after cropping; 0 for 224", 0)
    model_settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("epochs", "batch_size", "accumulate", "test_every"):
            at_least(name, getattr(self, name), 1)
        for name in ("limit", "img_size", "seed"):
            at_least(name, getattr(self, name), 0)
        for name in ("lr", "weight_decay", "clip_norm", "warmup_epochs", "momentum"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("momentum", "label_smoothing", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        choices = {
            "recipe": tuple(RECIPES),
            "schedule": ("step", "cosine"),
            "precision": ("float32", "bf16"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(unknown(name, getattr(self, name), allowed))
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        from clustercaps.data.catalogue import info, is_streamed
        from clustercaps.models.registry import check_settings

        check_settings(self.model, self.model_settings)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum > 0; set momentum 0.9 or drop nesterov")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs ({self.warmup_epochs}) must be less than epochs ({self.epochs})"
            )
        if self.accumulate > self.batch_size:
            raise ValueError(
                f"accumulate ({self.accumulate}) cannot exceed batch_size ({self.batch_size})"
            )
        if not is_streamed(self.data):
            info(self.data)
            if self.img_size:
                raise ValueError(f"img_size is for streamed images; {self.data} always gives 32x32")
        elif not self.augment:
            raise ValueError(
                f"{self.data} is cropped and flipped while it is read; augment cannot be off"
            )
        for name in ("num_classes", "in_chans", "img_size"):
            if name in self.model_settings:
                raise ValueError(f"{name} follows from the data; it cannot be set for the network")

    def to_json(self) -> str:
        """The settings as JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


RECIPES: dict[str, dict[str, Any]] = {
    # As the paper trains; its code adds the weight decay.
    "paper": {
        "epochs": 300,
        "batch_size": 64,
        "lr": 0.1,
        "schedule": "step",
        "weight_decay": 5e-4,
    },
    # For short runs; how it was chosen, and what was not tuned: docs/training.md.
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
}


def resolve(model: str, data: str, recipe: str = "fast", **overrides: Any) -> TrainSettings:
    """A recipe with some of its settings changed; unknown names are refused."""
    if recipe not in RECIPES:
        raise ValueError(unknown("recipe", recipe, RECIPES))
    known = [f.name for f in dataclasses.fields(TrainSettings)]
    for name in overrides:
        if name not in known:
            raise ValueError(unknown("setting", name, known))
    chosen = {"model": model, "data": data, "recipe": recipe, **RECIPES[recipe], **overrides}
    return TrainSettings(**chosen)


def from_json(text: str, source: str) -> TrainSettings:
    """Settings from JSON text; `source` names it in errors."""
    try:
        return TrainSettings(**json.loads(text))
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"{source} does not hold the settings of a run: {error}") from error


def check_types(settings: TrainSettings) -> None:
    """Refuse values of the wrong type; an int may stand for a float, as in JSON."""
    hints = typing.get_type_hints(TrainSettings)
    for each in dataclasses.fields(settings):
        value, expected = getattr(settings, each.name), hints[each.name]
        if isinstance(expected, types.GenericAlias):
            expected = typing.get_origin(expected)
        if expected is float and type(value) is int:
            object.__setattr__(settings, each.name, float(value))
        elif type(value) is not expected:
            raise ValueError(f"{each.name} must be {expected.__name__}, got {value!r}")
