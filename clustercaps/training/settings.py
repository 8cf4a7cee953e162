"""The settings of a run, and the checks that reject invalid ones before any work starts.

Imports nothing heavy, so that `clustercaps train --help` is fast.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clustercaps.training.settings_checks import (
    RECIPE_NAMES,
    check_contradictions,
    check_data,
    check_types,
    check_values,
)
from clustercaps.utils.errors import unknown
from clustercaps.utils.json_files import json_text, parse_object

__all__ = ["RECIPE_NAMES", "TrainSettings", "differs_from_published", "from_json", "resolve"]


def setting(help: str, default: Any = dataclasses.MISSING) -> Any:
    """A field with its `--help` text."""
    return field(default=default, metadata={"help": help})


# Folders up to this size are held in memory.
MEMORY_GB = 1.0


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
    scale_head: bool = setting(
        "divide the head's learning rate by the number of positions that it reads, relative to "
        "images of 32x32",
        False,
    )
    augment: bool = setting("random jitter, crop and flip, as in the paper", True)
    flips: str = setting(
        "random; alternating: every image is flipped in every other epoch; or none", "random"
    )
    crop_area: float = setting(
        "smallest area of a random crop, as a fraction of the image; crops are resized to the "
        "input; 0 for crops that are not resized",
        0.0,
    )
    erase: float = setting(
        "probability that a rectangle of a training image is replaced by noise", 0.0
    )
    normalise: str = setting(
        "mean and standard deviation for normalisation: published (for folders ImageNet's), or "
        "data: those of the training images",
        "published",
    )
    memory_gb: float = setting(
        "folders: decode images once and hold them in memory if they take at most this many GB; 0 "
        "reads them again in every epoch",
        0.0,
    )
    validate: bool = setting("hold out a fifth of the training set and test on it", False)
    early_stop: int = setting(
        "stop when the error on the held-out images has not fallen for this many epochs; needs "
        "--validate; 0 for never",
        0,
    )
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
        check_values(self)
        check_contradictions(self)
        check_data(self)

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
    from clustercaps.data.catalogue import is_own, published_name
    from clustercaps.models.registry import get_preset

    preset = get_preset(model)
    recipe = recipe or preset.recipe_for(published_name(data))
    start = preset.get_recipe(recipe, published_name(data))
    known = [f.name for f in dataclasses.fields(TrainSettings)]
    for name in overrides:
        if name not in known:
            raise ValueError(unknown("setting", name, known))
    new_network = is_own(data) and not overrides.get("init_from")
    # Weights to start from were most likely trained with the usual size and head.
    task = published_name(data) if new_network or not is_own(data) else ""
    size = {"img_size": preset.size_for(task)}
    if new_network and "img_size" not in overrides and task in preset.sizes:
        size["img_size"] = size_for_folder(data, size["img_size"], preset.img_size)
    if is_own(data) and recipe == "strong" and "epochs" not in overrides:
        start = {**start, "epochs": epochs_for_folder(data, {**start, **overrides})}
    # Runs of earlier versions normalised folders as ImageNet, and read them in every epoch.
    own = {"normalise": "data", "memory_gb": MEMORY_GB} if is_own(data) else {}
    chosen = {"model": model, "data": data, "recipe": recipe, **size, **own, **start, **overrides}
    network = chosen.get("model_settings", {})
    if new_network and isinstance(network, dict):
        chosen["model_settings"] = {**preset.own_settings, **network}
    return TrainSettings(**chosen)


def size_for_folder(data: str, usual: int, smallest: int) -> int:
    """The image size for a folder: the usual one, or less if its images are smaller."""
    from clustercaps.data.folders import largest_side

    side = largest_side(data) if data.startswith("folder:") else None
    return usual if side is None else min(usual, max(smallest, side))


# Fewer steps than this leave a network half trained; a small folder gets as many, within reason.
FEWEST_STEPS, MOST_EPOCHS = 800, 200


def epochs_for_folder(data: str, settings: Mapping[str, Any]) -> int:
    """The epochs for a folder: those of the recipe, or more if these would be too few steps."""
    from clustercaps.data.folders import count_images

    usual: int = settings["epochs"]
    images = count_images(data) if data.startswith("folder:") else None
    batch, limit = settings["batch_size"], settings.get("limit", 0)
    # Values of the wrong type are refused by the settings themselves.
    if not images or not all(type(value) is int for value in (batch, limit)) or batch < 1:
        return usual
    steps = math.ceil(min(images, limit or images) / batch)
    return max(usual, min(MOST_EPOCHS, math.ceil(FEWEST_STEPS / steps)))


def differs_from_published(settings: TrainSettings) -> str:
    """How dataset or image size differ from the published ones; empty if they do not."""
    from clustercaps.data.catalogue import is_own
    from clustercaps.models.registry import get_preset
    from clustercaps.utils.sizes import show_size

    if is_own(settings.data) and settings.recipe == "strong":
        # Nobody takes a recipe of ours on images of their own for published.
        return ""
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
