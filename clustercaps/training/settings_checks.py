"""Checks of the settings of a run: types, values, contradictions, what dataset and network take."""

import dataclasses
import math
import types
import typing
from fractions import Fraction

from clustercaps.utils.errors import at_least, unknown
from clustercaps.utils.json_files import is_finite

if typing.TYPE_CHECKING:
    from clustercaps.training.settings import TrainSettings

RECIPE_NAMES = ("paper", "fast", "strong")
"""Names of recipes: "paper" as in the network's paper, "fast" with few epochs, "strong" with the
lowest error we know how to reach."""


def check_types(settings: "TrainSettings") -> None:
    """Reject values of the wrong type; an int is accepted as a float, as in JSON."""
    hints = typing.get_type_hints(type(settings))
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


def check_values(settings: "TrainSettings") -> None:
    """Reject numbers out of range and unknown names."""
    for name in ("epochs", "batch_size", "accumulate", "test_every"):
        at_least(name, getattr(settings, name), 1)
    for name in ("limit", "epoch_images", "test_limit", "early_stop", "img_size", "seed"):
        at_least(name, getattr(settings, name), 0)
    rates = ("lr", "adamw_lr", "lr_floor", "weight_decay", "step_decay")
    for name in (*rates, "clip_norm", "warmup_epochs", "momentum", "memory_gb"):
        if getattr(settings, name) < 0:
            raise ValueError(f"{name} must not be negative, got {getattr(settings, name)}")
    shares = ("momentum", "label_smoothing", "average", "erase", "warmup_fraction", "beta1_low")
    for name in (*shares, "crop_area"):
        if not 0 <= getattr(settings, name) < 1:
            raise ValueError(f"{name} must be in [0, 1), got {getattr(settings, name)}")
    choices = {
        "recipe": RECIPE_NAMES,
        "optimizer": ("sgd", "adam", "adamw", "rmsprop", "radam", "muon"),
        "schedule": ("step", "cosine", "linear", "exponential", "constant"),
        "flips": ("random", "alternating", "none"),
        "precision": ("float32", "bf16"),
        "normalise": ("published", "data"),
        "views": ("", "azimuth", "elevation"),
    }
    for name, allowed in choices.items():
        if getattr(settings, name) not in allowed:
            raise ValueError(unknown(name, getattr(settings, name), allowed))


def check_contradictions(settings: "TrainSettings") -> None:
    """Reject settings that exclude each other."""
    if not 0 < settings.lr_decay <= 1 or settings.decay_epochs <= 0:
        raise ValueError(
            "lr_decay must be in (0, 1] and decay_epochs positive, got "
            f"{settings.lr_decay} and {settings.decay_epochs}"
        )
    check_drops(settings.drops)
    if settings.momentum and settings.optimizer not in ("sgd", "muon"):
        raise ValueError(
            f"momentum is not supported by {settings.optimizer}; remove it, or use sgd or muon"
        )
    if settings.nesterov and not settings.momentum:
        raise ValueError("nesterov needs momentum > 0; set momentum=0.9 or remove nesterov")
    if settings.beta1_low and settings.optimizer not in ("adam", "adamw", "radam"):
        raise ValueError(
            f"beta1_low is not supported by {settings.optimizer}; remove it, or use adam, adamw or "
            "radam"
        )
    if settings.beta1_low and settings.lr <= settings.lr_floor:
        raise ValueError(
            f"beta1_low needs lr above lr_floor, got {settings.lr} and {settings.lr_floor}"
        )
    if settings.warmup_epochs and settings.warmup_fraction:
        raise ValueError("warmup_epochs and warmup_fraction exclude each other; remove one")
    if settings.warmup_epochs >= settings.epochs:
        raise ValueError(
            f"warmup_epochs ({settings.warmup_epochs}) must be less than epochs ({settings.epochs})"
        )
    if settings.freeze and not settings.init_from:
        raise ValueError("freeze needs init_from: only trained weights are worth keeping")
    if settings.accumulate > settings.batch_size:
        raise ValueError(
            f"accumulate ({settings.accumulate}) cannot exceed batch_size ({settings.batch_size})"
        )
    if settings.early_stop and not settings.validate:
        raise ValueError(
            "early_stop needs validate, which holds out a fifth of the training set: the test set "
            "must not decide when a run ends"
        )


def check_data(settings: "TrainSettings") -> None:
    """Reject settings that the dataset or the network cannot have."""
    from clustercaps.data.catalogue import info, is_own, is_streamed
    from clustercaps.models.registry import check_settings

    check_settings(settings.model, settings.model_settings)
    known = None
    if not is_streamed(settings.data) and not is_own(settings.data):
        known = info(settings.data)
    if settings.views and (known is None or not known.stereo):
        raise ValueError(
            f"views is not supported by {settings.data}; use smallnorb or rendered-norb"
        )
    if settings.views and settings.validate:
        raise ValueError("views tests on the test set, validate does not; set only one of them")
    if settings.normalise == "data" and known is not None and known.stereo:
        raise ValueError(f"{settings.data} is standardised image by image; remove normalise")
    if settings.memory_gb and not is_own(settings.data):
        raise ValueError(f"memory_gb is for folders, not for {settings.data}; remove it")
    if settings.crop_area and not (is_own(settings.data) and settings.augment):
        raise ValueError("crop_area is for folders and images given in Python, with augment")
    streamed = is_streamed(settings.data) and not settings.memory_gb
    if (settings.erase or settings.flips == "alternating") and (streamed or not settings.augment):
        raise ValueError("erase and alternating flips need augment and a dataset in memory")
    for name in ("num_classes", "in_chans", "img_size"):
        if name in settings.model_settings:
            raise ValueError(f"{name} is determined by the dataset; remove it")


def check_drops(text: str) -> None:
    """Reject drops that are not fractions of the run, such as "1/3,2/3"."""
    try:
        good = all(0 < Fraction(part) < 1 for part in text.split(",") if part)
    except (ValueError, ZeroDivisionError):
        good = False
    if not good:
        raise ValueError(f'drops must be fractions of the run such as "1/3,2/3", got {text!r}')
