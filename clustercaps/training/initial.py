"""The network of a run before its first step: initial weights, or those of a trained network."""

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from clustercaps import data
from clustercaps.data import FolderImages, Images
from clustercaps.models import ImageClassifier, create_model, from_pretrained
from clustercaps.models.locate import locate
from clustercaps.models.transfer import head_names, with_in_chans
from clustercaps.training.batches import class_names
from clustercaps.training.finished import Trained, run_folder_of
from clustercaps.training.identity import tensor_digest
from clustercaps.training.processes import in_all, in_first, same_in_all
from clustercaps.training.settings import TrainSettings
from clustercaps.utils.sizes import show_size

# Settings in which a network may differ from the one it starts from.
FREE = ("num_classes", "in_chans")


def new_network(settings: TrainSettings, images: Images | FolderImages) -> ImageClassifier:
    """The network of a run with initial weights; with `freeze`, only its head can be trained."""
    model = create_model(settings.model, **network_settings(settings, images))
    if settings.freeze:
        head = head_names(model)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in head)
    return model


def network_settings(settings: TrainSettings, images: Images | FolderImages) -> dict[str, Any]:
    """Arguments of the network: those that the dataset determines, and `model_settings`."""
    classes = len(class_names(images))
    if classes < 2:
        raise ValueError(
            f"{settings.data} has {classes} class; a classifier needs at least two: expected one "
            "subfolder per class"
        )
    if isinstance(images, FolderImages):
        in_chans = 3
    elif data.is_own(settings.data):
        in_chans = images.pixels.shape[1]
    else:
        in_chans = data.info(settings.data).shape[0]
    shape = {"in_chans": in_chans, "img_size": settings.side, "num_classes": classes}
    return {**shape, **settings.model_settings}


def start_together(
    accelerator: Accelerator,
    model: ImageClassifier,
    settings: TrainSettings,
    names: Sequence[str],
) -> dict[str, Any] | None:
    """`start_from` in every process, if the settings name a trained network."""
    if not settings.init_from:
        return None
    # The main process downloads it; the others find it in the cache.
    in_first(accelerator, lambda: locate(settings.init_from))
    start = in_all(accelerator, lambda: start_from(model, settings.init_from, names))
    same_in_all(accelerator, start, "initial weights")
    return start


def start_from(model: ImageClassifier, name: str, class_names: Sequence[str]) -> dict[str, Any]:
    """Copy the weights of a trained network; returns what the result of the run says about it.

    The head keeps its initial weights unless the trained network has the same classes.

    Args:
        model: The network of the run.
        name: The trained network, as `from_pretrained` takes it.
        class_names: Class names of the run.
    """
    # What is built here must not change the random numbers of the run.
    with torch.random.fork_rng(devices=[]):
        source, names = _open(name)
        _refuse_other_network(model, source, name)
        digest = tensor_digest(source.state_dict(), {})
        if source.in_chans != model.in_chans:
            source = with_in_chans(source, model.in_chans)
    new = head_names(model) if tuple(names) != tuple(class_names) else set()
    kept = {each: tensor for each, tensor in source.state_dict().items() if each not in new}
    model.load_state_dict(kept, strict=False)
    return {"init_from": name, "init_sha256": digest, "init_new": sorted(new)}


def _open(name: str) -> tuple[ImageClassifier, tuple[str, ...]]:
    """A trained network and its class names; no names if they are not known."""
    if run_folder_of(name) is not None:
        trained = Trained.open(name)
        return trained.model, trained.class_names
    model = from_pretrained(name)
    return model, model.preprocessing.class_names if model.preprocessing else ()


def _refuse_other_network(model: ImageClassifier, source: ImageClassifier, name: str) -> None:
    """Raise an error unless both networks differ only in their head and colour channels."""
    if type(source) is not type(model):
        raise ValueError(
            f"{name} is a {type(source).__name__}, this run trains a {type(model).__name__}; pass "
            "weights of the same network"
        )
    if source.img_size != model.img_size:
        raise ValueError(
            f"{name} takes images of {show_size(source.img_size)}, this run has "
            f"{show_size(model.img_size)}; pass --img-size {source.img_size[0]}"
        )
    ours, theirs = model.settings, source.settings
    differ = [key for key in ours if key not in (*FREE, "img_size") and ours[key] != theirs[key]]
    if differ:
        listed = ", ".join(f"{key}={theirs[key]!r} and not {ours[key]!r}" for key in differ)
        flags = " ".join(f"--set {key}={theirs[key]}" for key in differ)
        raise ValueError(f"{name} has {listed}; train the same network, with {flags}")


def set_training(model: nn.Module) -> None:
    """Training mode, except for modules with weights that are frozen: these stay in eval mode."""
    frozen = any(not parameter.requires_grad for parameter in model.parameters())
    model.train(not frozen)
    for module in model.modules() if frozen else ():
        if any(parameter.requires_grad for parameter in module.parameters(recurse=False)):
            module.train()


def describe_start(start: dict[str, Any], model: nn.Module) -> str:
    """Where the weights come from, what is new, and how many parameters are trained."""
    total = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    new = (
        f"new weights: {', '.join(start['init_new'])}" if start["init_new"] else "the same classes"
    )
    return (
        f"starting from {start['init_from']} (sha256 {start['init_sha256'][:12]}), {new}; "
        f"training {trained:,} of {total:,} parameters"
    )
