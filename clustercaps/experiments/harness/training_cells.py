"""Cells that train a network and test it once, at the end."""

import dataclasses
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.cells import Cell, Row, Workspace
from clustercaps.experiments.harness.store import CONDITIONS
from clustercaps.training.settings import TrainSettings, resolve

if TYPE_CHECKING:
    from clustercaps.training.batches import Load

# Columns of a training run's row, with their names in its `result.json`.
COLUMNS = (
    *("model", "data", "img_size", "recipe", "epochs", "train_images", "test_images"),
    *("parameters", "children"),
    *("test_error", "top5_error", "test_loss", "weights", "train_seconds", "processes"),
)
# Epochs between tests: a run is tested once, at its end, so that no epoch can be selected.
NEVER = 10**9


def training(
    id: str,
    model: str,
    data: str,
    recipe: str,
    measure: Callable[[TrainSettings, int, Workspace], Row] | None = None,
    seeds: tuple[int, ...] | None = None,
    same_as: tuple[str, str] | None = None,
    **changes: Any,
) -> Cell:
    """A cell that trains a network.

    Args:
        id: Cell id.
        model: A name from `clustercaps models`.
        data: A name from `clustercaps data list`.
        recipe: "paper", "fast" or "strong".
        measure: Maps settings, seed and workspace to a row; `train_once` by default.
        seeds: Seeds of this cell, if not those of the budget.
        same_as: Experiment and cell of the same run, which is then trained once for both.
        **changes: Settings that differ from the recipe.
    """
    settings = resolve(model, data, recipe, **{"test_every": NEVER, **changes})
    stored = asdict(settings)
    del stored["seed"]
    run = partial(measure or train_once, settings)
    return Cell(id, stored, run, data, default_settings(), seeds=seeds, same_as=same_as)


def train_once(
    settings: TrainSettings, seed: int, workspace: Workspace, load: "Load | None" = None
) -> Row:
    """Train with one seed, or resume the run in the workspace, and return its row.

    Args:
        settings: Settings of the run, except the seed.
        seed: Seed of the run.
        workspace: Where to write the run.
        load: Reads a dataset into memory; `data.load` by default.
    """
    from clustercaps.training import train
    from clustercaps.training.run_folder import RunFolder

    result = train(
        replace(settings, seed=seed),
        workspace.folder,
        resume=not workspace.fresh,
        overwrite=workspace.fresh,
        data_dir=workspace.data_dir,
        workers=workspace.workers,
        load=load,
    )
    # A run that an older version finished has neither image size nor children.
    row = {name: result.get(name) for name in (*COLUMNS, *CONDITIONS)}
    lines = RunFolder(workspace.folder).metrics()
    return {**row, "train_error": lines[-1]["train_error"] if lines else None}


def default_settings() -> dict[str, Any]:
    """Defaults of the settings of a run, except the seed, which is not a setting of a cell."""
    return {
        f.name: f.default
        for f in dataclasses.fields(TrainSettings)
        if f.default is not dataclasses.MISSING and f.name != "seed"
    }
