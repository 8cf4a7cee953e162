"""The settings of a run, and the checks that reject invalid ones before any work starts.

Imports nothing heavy, so that `clustercaps train --help` is fast.
"""

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from clustercaps.utils.errors import at_least, unknown
from clustercaps.utils.json_files import is_finite, json_text, parse_object


def setting(help: str, default: Any = dataclasses.MISSING) -> Any:
    """A field with its `--help` text."""
    return field(default=default, metadata={"help": help})


RECIPE_NAMES = ("paper", "fast", "strong")
"""Names of recipes: "paper" as in the network's paper, "fast" with few epochs, "strong" with the
lowest error we know how to reach."""


@dataclass(frozen=True)
class TrainSettings:
    """Everything that determines the result of a run."""

    model: str = setting("a name from `clustercaps models`")
    data: str = setting("a name from `clustercaps data list`, or folder:PATH")
    recipe: str = setting("defaults of the settings below: paper, fast or strong")
    epochs: int = setting("passes over the training set")
    batch_size: int = setting("images per step, over all processes", 64)
    lr: float = setting("peak learning rate", 0.1)
    optimizer: str = setting(
        "sgd, adam, adamw, rmsprop, radam, or muon (orthogonalised momentum for convolutions, "
        "AdamW for the rest)",
        "sgd",
    )
    adamw_lr: float = setting("muon: peak learning rate of the AdamW parameters", 2e-3)
    schedule: str = setting(
        "step: multiply by lr_decay at each of the drops; cosine or linear: decay to lr_floor; "
        "exponential: decay smoothly by lr_decay every decay_epochs; constant",
        "step",
    )
    lr_decay: float = setting("decay factor of the step and exponential schedules", 0.1)
    drops: str = setting("step: fractions of the run at which the rate drops", "1/3,2/3")
    decay_epochs: float = setting("exponential: epochs per factor of lr_decay", 1.0)
    lr_floor: float = setting(
        "minimum learning rate: of exponential, at the start of warm-up, and at the end of cosine "
        "and linear",
        0.0,
    )
    step_decay: float = setting(
        "divide the scheduled rate by 1 + step_decay x steps, as in Keras", 0.0
    )
    warmup_epochs: float = setting("epochs of linear warm-up from lr_floor", 0.0)
    warmup_fraction: float = setting("warm-up as a fraction of the run, not in epochs", 0.0)
    beta1_low: float = setting(
        "adam, adamw, radam: beta1 at the peak learning rate; beta1 moves from 0.9 to this value "
        "and back as the rate rises and falls; 0 for a constant 0.9",
        0.0,
    )
    momentum: float = setting("momentum of sgd and muon", 0.0)
    nesterov: bool = setting("use Nesterov momentum", False)
    weight_decay: float = setting("L2 penalty on all parameters; decoupled in adamw and muon", 5e-4)
    label_smoothing: float = setting("label smoothing", 0.0)
    clip_norm: float = setting("maximum gradient norm; 0 for no clipping", 0.0)
    average: float = setting(
        "decay of an exponential moving average of the weights, which is then tested; 0 for none",
        0.0,
    )
    augment: bool = setting("random jitter, crop and flip, as in the paper", True)
    flips: str = setting(
        "random, or alternating: every image is flipped in every other epoch", "random"
    )
    erase: float = setting(
        "probability that a rectangle of a training image is replaced by noise", 0.0
    )
    validate: bool = setting("hold out a fifth of the training set and test on it", False)
    limit: int = setting("train on this many images, balanced over classes; 0 for all", 0)
    epoch_images: int = setting(
        "images per epoch, sampled again for each, to test more often; 0 for all", 0
    )
    test_limit: int = setting(
        "test on this many images, balanced over classes, always the same; 0 for all", 0
    )
    views: str = setting(
        "azimuth or elevation: train and test on familiar viewpoints, and also test on novel "
        "ones; smallnorb and rendered-norb only",
        "",
    )
    seed: int = setting("seed of initial weights, image order and augmentation", 0)
    precision: str = setting("float32 or bf16 (mixed)", "float32")
    accumulate: int = setting("gradient accumulation: split each batch into this many parts", 1)
    test_every: int = setting("epochs between tests; the last epoch is always tested", 1)
    img_size: int = setting(
        "height and width of the network's input (default: the size it was designed for)", 0
    )
    init_from: str = setting(
        "start from the weights of a run, a folder of save_pretrained, MODEL:DATA or user/repo on "
        "the Hub; the head is new if the classes differ",
        "",
    )
    freeze: bool = setting("train only the head; needs init_from", False)
    model_settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_types(self)
        # As versions wrote it that knew no other size, so that their runs go on.
        if self.img_size == self.usual_side:
            object.__setattr__(self, "img_size", 0)
        for name in ("epochs", "batch_size", "accumulate", "test_every"):
            at_least(name, getattr(self, name), 1)
        for name in ("limit", "epoch_images", "test_limit", "img_size", "seed"):
            at_least(name, getattr(self, name), 0)
        rates = ("lr", "adamw_lr", "lr_floor", "weight_decay", "step_decay")
        for name in (*rates, "clip_norm", "warmup_epochs", "momentum"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        shares = ("momentum", "label_smoothing", "average", "erase", "warmup_fraction", "beta1_low")
        for name in shares:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        choices = {
            "recipe": RECIPE_NAMES,
            "optimizer": ("sgd", "adam", "adamw", "rmsprop", "radam", "muon"),
            "schedule": ("step", "cosine", "linear", "exponential", "constant"),
            "flips": ("random", "alternating"),
            "precision": ("float32", "bf16"),
            "views": ("", "azimuth", "elevation"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(unknown(name, getattr(self, name), allowed))
        self._refuse_contradictions()
        self._refuse_data()

    def _refuse_contradictions(self) -> None:
        if not 0 < self.lr_decay <= 1 or self.decay_epochs <= 0:
            raise ValueError(
                "lr_decay must be in (0, 1] and decay_epochs positive, got "
                f"{self.lr_decay} and {self.decay_epochs}"
            )
        check_drops(self.drops)
        if self.momentum and self.optimizer not in ("sgd", "muon"):
            raise ValueError(
                f"momentum is not supported by {self.optimizer}; remove it, or use sgd or muon"
            )
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum > 0; set momentum=0.9 or remove nesterov")
        if self.beta1_low and self.optimizer not in ("adam", "adamw", "radam"):
            raise ValueError(
                f"beta1_low is not supported by {self.optimizer}; remove it, or use adam, adamw or "
                "radam"
            )
        if self.beta1_low and self.lr <= self.lr_floor:
            raise ValueError(
                f"beta1_low needs lr above lr_floor, got {self.lr} and {self.lr_floor}"
            )
        if self.warmup_epochs and self.warmup_fraction:
            raise ValueError("warmup_epochs and warmup_fraction exclude each other; remove one")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs ({self.warmup_epochs}) must be less than epochs ({self.epochs})"
            )
        if self.freeze and not self.init_from:
            raise ValueError("freeze needs init_from: only trained weights are worth keeping")
        if self.accumulate > self.batch_size:
            raise ValueError(
                f"accumulate ({self.accumulate}) cannot exceed batch_size ({self.batch_size})"
            )

    def _refuse_data(self) -> None:
        from clustercaps.data.catalogue import info, is_streamed
        from clustercaps.models.registry import check_settings

        check_settings(self.model, self.model_settings)
        if self.views and (is_streamed(self.data) or not info(self.data).stereo):
            raise ValueError(
                f"views is not supported by {self.data}; use smallnorb or rendered-norb"
            )
        if self.views and self.validate:
            raise ValueError("views tests on the test set, validate does not; set only one of them")
        if not is_streamed(self.data):
            info(self.data)
        elif not self.augment:
            raise ValueError(
                f"augment=False is not supported by {self.data}: images are cropped and flipped "
                "while they are read"
            )
        if (self.erase or self.flips != "random") and (is_streamed(self.data) or not self.augment):
            raise ValueError("erase and flips need augment and a dataset in memory")
        for name in ("num_classes", "in_chans", "img_size"):
            if name in self.model_settings:
                raise ValueError(f"{name} is determined by the dataset; remove it")

    @property
    def warmup(self) -> float:
        """Epochs in which the learning rate rises."""
        return self.warmup_epochs or self.warmup_fraction * self.epochs

    @property
    def usual_side(self) -> int:
        """The side that `img_size=0` means."""
        from clustercaps.data.catalogue import is_streamed

        return 224 if is_streamed(self.data) else 32

    @property
    def side(self) -> int:
        """Height and width of the network's input."""
        return self.img_size or self.usual_side

    def to_json(self) -> str:
        """The settings as JSON text."""
        return json_text(dataclasses.asdict(self), indent=2) + "\n"


def resolve(model: str, data: str, recipe: str | None = None, **overrides: Any) -> TrainSettings:
    """A recipe with some of its settings overridden; unknown names are rejected."""
    from clustercaps.data.catalogue import published_name
    from clustercaps.models.registry import get_preset

    preset = get_preset(model)
    recipe = recipe or preset.default_recipe
    start = preset.get_recipe(recipe, published_name(data))
    known = [f.name for f in dataclasses.fields(TrainSettings)]
    for name in overrides:
        if name not in known:
            raise ValueError(unknown("setting", name, known))
    size = {"img_size": preset.size_for(published_name(data))}
    chosen = {"model": model, "data": data, "recipe": recipe, **size, **start, **overrides}
    return TrainSettings(**chosen)


def differs_from_published(settings: TrainSettings) -> str:
    """How dataset or image size differ from the published ones; empty if they do not."""
    from clustercaps.models.registry import get_preset
    from clustercaps.utils.sizes import show_size

    preset = get_preset(settings.model)
    published: dict[int, list[str]] = {}
    for name in preset.data:
        published.setdefault(preset.size_for(name), []).append(name)
    if settings.data in published.get(settings.side, []):
        return ""
    named = (f"{', '.join(names)} at {show_size(size)}" for size, names in published.items())
    return (
        f"{settings.model} was published on {' and '.join(named)}; this run has {settings.data} at "
        f"{show_size(settings.side)}"
    )


def check_drops(text: str) -> None:
    """Reject drops that are not fractions of the run, such as "1/3,2/3"."""
    try:
        good = all(0 < Fraction(part) < 1 for part in text.split(",") if part)
    except (ValueError, ZeroDivisionError):
        good = False
    if not good:
        raise ValueError(f'drops must be fractions of the run such as "1/3,2/3", got {text!r}')


# Network settings of runs from before step_decay existed, where the same name now builds another
# network.
MEANT_BEFORE: dict[str, dict[str, Any]] = {"capsnet_cifar10": {"same_padding": True}}


def from_json(text: str, source: str) -> TrainSettings:
    """Settings from JSON text; `source` names it in errors."""
    stored = parse_object(text, source)
    try:
        if "step_decay" not in stored:
            meant = MEANT_BEFORE.get(stored["model"], {})
            stored["model_settings"] = {**meant, **stored.get("model_settings", {})}
        return TrainSettings(**stored)
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"{source} does not contain valid run settings: {error}") from error


def check_types(settings: TrainSettings) -> None:
    """Reject values of the wrong type; an int is accepted as a float, as in JSON."""
    hints = typing.get_type_hints(TrainSettings)
    for each in dataclasses.fields(settings):
        value, expected = getattr(settings, each.name), hints[each.name]
        if isinstance(expected, types.GenericAlias):
            expected = typing.get_origin(expected)
        if expected is float and type(value) is int:
            object.__setattr__(settings, each.name, float(value))
        elif type(value) is not expected:
            raise ValueError(f"{each.name} must be {expected.__name__}, got {value!r}")
        elif expected is float and not math.isfinite(value):
            raise ValueError(f"{each.name} must be a finite number, got {value}")
    for name, value in settings.model_settings.items():
        if not is_finite(value):
            raise ValueError(f"{name} of the network must have finite values, got {value!r}")
