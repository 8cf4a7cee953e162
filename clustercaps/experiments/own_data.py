"""Defaults for images of one's own: candidates on validation images, then networks of equal time.

The images are those of `python -m clustercaps.data.make_photos --train 400`: eight classes of
CIFAR-10, 400 training images each. Candidates are compared on the next 500 images of each class of
CIFAR-10's training set, which nobody trains on; no test image is used for a choice.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.cells import ONE_SEED, Cell, Experiment, Row, Workspace
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.plots import line_figure
from clustercaps.experiments.harness.spread import spreads
from clustercaps.experiments.harness.training_cells import train_once, training
from clustercaps.training.settings import TrainSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAIN, FEW_IMAGES, VALIDATION, TEST = 400, 150, 500, 1000
# Settings that every candidate starts from: the defaults before this experiment.
BASE: dict[str, Any] = {
    "epochs": 30,
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
    "scale_head": True,
    "normalise": "data",
    "memory_gb": 1.0,
    "img_size": 32,
}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "m1": ("m1", {"global_pool": "avg"}),
    "m1-max": ("m1", {"global_pool": "max"}),
    "m1-both": ("m1", {"global_pool": "catavgmax"}),
    "m1-head": ("m1", {"global_pool": ""}),
    "cnn": ("baseline_cnn", {"width": 40}),
    "viewpoint": ("viewpoint_cnn", {}),
}
FASTER = {"precision": "bf16"}
CANDIDATES: dict[str, dict[str, Any]] = {
    "m1/base": {},
    "cnn/base": {},
    "m1/crop-0.3": {"crop_area": 0.3, **FASTER},
    "m1-head/crop-0.3": {"crop_area": 0.3, **FASTER},
    "cnn/crop-0.3": {"crop_area": 0.3, "epochs": 41},
}
SMALL = {"crop_area": 0.3, "batch_size": 32}
FEW: dict[str, dict[str, Any]] = {
    "few/m1": {**SMALL, **FASTER},
    "few/m1-both": {**SMALL, **FASTER},
    "few/m1-max": {**SMALL, **FASTER},
    "few/m1-head": {**SMALL, **FASTER},
    "few/m1/sgd": {
        **SMALL,
        **FASTER,
        "optimizer": "sgd",
        "lr": 0.03,
        "momentum": 0.9,
        "weight_decay": 5e-4,
    },
    "few/m1/lr-0.05": {**SMALL, **FASTER, "lr": 0.05, "adamw_lr": 5e-3},
    "few/m1/decay-0.2": {**SMALL, **FASTER, "weight_decay": 0.2},
    "few/m1/erase": {**SMALL, **FASTER, "erase": 0.5},
    "few/m1/epochs-80": {**SMALL, **FASTER, "epochs": 80},
    "few/cnn": {**SMALL, "epochs": 41},
    "few/viewpoint": {**SMALL, "epochs": 27},
}


def cells(budget: str) -> list[Cell]:
    """One training run per candidate."""
    return [candidate(id, changes) for id, changes in (CANDIDATES | FEW).items()]


def candidate(id: str, changes: dict[str, Any]) -> Cell:
    """A training run that is compared on validation images."""
    few = id.startswith("few/")
    model, own = NETWORKS[id.removeprefix("few/").partition("/")[0]]
    settings = {**BASE, "model_settings": own, **changes}
    data = "own:photos-150-validation" if few else "own:photos-validation"
    cell = training(id, model, data, "strong", measure=measure, **settings)
    return replace(cell, data="cifar10")


def measure(settings: TrainSettings, seed: int, workspace: Workspace) -> Row:
    """Train on photos; also counts processor time, which other programs do not change."""
    from clustercaps.training.run_folder import RunFolder

    resumed = not workspace.fresh and RunFolder(workspace.folder).checkpoint.exists()
    images = photos(workspace.data_dir, FEW_IMAGES if "-150-" in settings.data else TRAIN)
    began = time.process_time()
    row = train_once(settings, seed, workspace, load=images)
    # What an interrupted run had used before is not known.
    return row if resumed else {**row, "cpu_seconds": round(time.process_time() - began, 1)}


def photos(data_dir: str | None, images: int) -> Any:
    """Training and validation images."""
    from clustercaps import data
    from clustercaps.data.make_photos import CLASSES
    from clustercaps.training.own_data import GivenImages

    whole = data.load("cifar10", "train", data_dir)
    parts = []
    for first, count in ((0, images), (TRAIN, VALIDATION)):
        import torch

        picks = torch.cat(
            [(whole.labels == c).nonzero().flatten()[first : first + count] for c in range(CLASSES)]
        )
        parts.append((whole.pixels[picks], whole.labels[picks]))
    return GivenImages(*parts, whole.meta["class_names"][:CLASSES])


def table(rows: Sequence[Row], _: str) -> str:
    """One row per candidate."""
    errors, train, seconds = (
        spreads(rows, c) for c in ("test_error", "train_error", "train_seconds")
    )
    lines = [
        [id, str(errors[id]), str(train[id]), str(seconds[id])]
        for id in CANDIDATES | FEW
        if id in errors
    ]
    return markdown_table(["candidate", "validation error %", "training error %", "s"], lines)


def figure(rows: Sequence[Row], _: str) -> "Figure":
    """Validation errors of all candidates."""
    errors = spreads(rows)
    shown = {id: errors[id] for id in CANDIDATES | FEW if id in errors}
    return line_figure({"M1": shown}, list(shown), "photos", "validation error (%)")


EXPERIMENT = Experiment(
    title="Own images",
    cells=cells,
    table=table,
    figure=figure,
    seeds=ONE_SEED,
    notes="",
)
