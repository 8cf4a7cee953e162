"""Cells that measure a network on test images, after training or untrained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from clustercaps import data
from clustercaps.experiments.harness.cells import Cell, Row, Workspace
from clustercaps.experiments.harness.training_cells import train_once, training
from clustercaps.models import ImageClassifier, create_model
from clustercaps.models.registry import most_children
from clustercaps.training.settings import TrainSettings, resolve
from clustercaps.utils.json_files import json_text

Item = TypeVar("Item")


@dataclass(frozen=True)
class View:
    """A network in eval mode, and test images.

    Args:
        model: The network.
        images: Preprocessed images.
        pixels: The same images with values in 0 to 1, the target of a decoder.
        labels: Their classes.
    """

    model: ImageClassifier
    images: Tensor
    pixels: Tensor
    labels: Tensor


# A measurement: maps the view, the options of the cell and a generator to columns of its row.
Look = Callable[[View, Mapping[str, Any], torch.Generator], Row]


def measured_training(
    id: str,
    model: str,
    data: str,
    recipe: str,
    look: Look,
    options: Mapping[str, Any],
    same_as: tuple[str, str] | None = None,
    **changes: Any,
) -> Cell:
    """A cell that trains a network and then measures it.

    Args:
        id: Cell id.
        model: A name from `clustercaps models`.
        data: A dataset in memory, from `clustercaps data list`.
        recipe: "paper" or "fast".
        look: The measurement.
        options: Its options, JSON-serialisable; `images` is the number of test images.
        same_as: Experiment and cell with the same training run.
        **changes: Settings that differ from the recipe.
    """
    measure = partial(_train_and_look, look, options)
    cell = training(id, model, data, recipe, measure, same_as=same_as, **changes)
    # A different measurement is a different result, even for the same training run.
    return replace(cell, settings={**cell.settings, "measurement": dict(options)})


def untrained(
    id: str,
    model: str,
    data: str,
    look: Look,
    options: Mapping[str, Any],
    model_settings: Mapping[str, Any] | None = None,
) -> Cell:
    """A cell that measures a network with its initial weights.

    Args:
        id: Cell id.
        model: A name from `clustercaps models`.
        data: A dataset in memory, from `clustercaps data list`.
        look: The measurement.
        options: Its options, JSON-serialisable; `images` is the number of test images.
        model_settings: Arguments of the network that differ from the defaults.
    """
    settings = {
        **{"model": model, "data": data, "model_settings": dict(model_settings or {})},
        # As for a training: what it was made for, and 32 if an older result does not say.
        **{"img_size": resolve(model, data).side, "measurement": dict(options)},
    }
    look_now = partial(_look_untrained, look, settings)
    return Cell(id, settings, look_now, data, {"img_size": 32})


def _train_and_look(
    look: Look,
    options: Mapping[str, Any],
    settings: TrainSettings,
    seed: int,
    workspace: Workspace,
) -> Row:
    from clustercaps.training.finished import Trained

    row = train_once(settings, seed, workspace)
    model = Trained.open(workspace.folder).model
    view = _view(model, settings.data, options["images"], workspace.data_dir)
    return {**row, **_measure(look, view, options, seed)}


def _look_untrained(look: Look, settings: Row, seed: int, workspace: Workspace) -> Row:
    known = data.info(settings["data"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = create_model(
            settings["model"],
            num_classes=known.num_classes,
            in_chans=known.shape[0],
            img_size=settings["img_size"],
            **settings["model_settings"],
        )
    options = settings["measurement"]
    view = _view(model, settings["data"], options["images"], workspace.data_dir)
    parameters = sum(p.numel() for p in model.parameters())
    about = {name: settings[name] for name in ("model", "data", "img_size")}
    about |= {"parameters": parameters, "children": most_children(model)}
    return {**about, **_measure(look, view, options, seed)}


def _view(model: ImageClassifier, name: str, count: int, data_dir: str | None) -> View:
    """The first `count` test images, balanced over classes; all of them if there are fewer."""
    from clustercaps.training.batches import balanced

    images = data.load(name, "test", data_dir)
    chosen = images.subset(balanced(images.labels, min(count, len(images))))
    prepare = data.test_transform(name, size=model.img_size[0])
    prepared = prepare(chosen.pixels)
    return View(model.eval(), prepared, prepare.pixels(prepared), chosen.labels)


@torch.no_grad()
def _measure(look: Look, view: View, options: Mapping[str, Any], seed: int) -> Row:
    columns = look(view, options, torch.Generator().manual_seed(seed))
    # Lists are for the figure: the CSV stores them as JSON.
    return {
        name: json_text(value) if isinstance(value, list | dict) else value
        for name, value in columns.items()
    }


def rounded(values: Tensor, digits: int = 5) -> Any:
    """A tensor as nested lists of rounded numbers."""
    scale = 10**digits
    whole = (values.double() * scale).round().tolist()

    def shrink(part: Any) -> Any:
        return [shrink(p) for p in part] if isinstance(part, list) else part / scale

    return shrink(whole)
