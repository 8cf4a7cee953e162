"""Defaults for images of one's own: candidates on validation images, then networks of equal time.

The images are those of `python -m clustercaps.data.make_photos`: eight classes of CIFAR-10, 400
training images of each, or 150 in cells that begin with `few`. Candidates are compared on the 500
images of each class that follow in CIFAR-10's training set, on which nothing is trained: no test
image is used for a choice. Cells that end with `test` train M1 and plain CNNs with the chosen
settings, for the same time, and test on all test images of these classes.

`night` takes 45 to 150 s of one thread per cell and seed. `quick` is 3 epochs of the comparison on
few images: too short for a ranking, it shows what is compared.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clustercaps.experiments import recipe
from clustercaps.experiments.harness.cells import ONE_SEED, Cell, Experiment, Row, Workspace
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.plots import line_figure
from clustercaps.experiments.harness.spread import Spread, spreads
from clustercaps.experiments.harness.training_cells import train_once, training
from clustercaps.training.settings import TrainSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clustercaps.training.own_data import GivenImages

# Settings that every candidate starts from: the defaults before this experiment.
BASE: dict[str, Any] = {
    **recipe.BASE,
    "epochs": 30,
    "scale_head": True,
    "normalise": "data",
    "memory_gb": 1.0,
    "img_size": 32,
}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "m1": ("m1", {"global_pool": "avg"}),
    "m1-both": ("m1", {"global_pool": "catavgmax"}),
    "m1-head": ("m1", {"global_pool": ""}),
    "cnn": ("baseline_cnn", {"width": 40}),
    "viewpoint": ("viewpoint_cnn", {}),
}
# Candidates of M1 were trained with bf16, which takes less time.
FASTER = {"precision": "bf16"}
CROPS = {"crop_area": 0.3, **FASTER}
SMALL = {**CROPS, "batch_size": 32}
SGD = {"optimizer": "sgd", "lr": 0.03, "momentum": 0.9, "weight_decay": 5e-4}
CANDIDATES: dict[str, dict[str, Any]] = {
    "m1/base": {},
    "cnn/base": {},
    "m1/crop-0.3": CROPS,
    "m1/batch-32": {"batch_size": 32, **FASTER},
    "m1-head/batch-32": {"batch_size": 32, **FASTER},
    "m1/batch-32-erase-0.5": {"batch_size": 32, "erase": 0.5, **FASTER},
    "few/m1": SMALL,
    "few/m1-both": SMALL,
    "few/m1-head": SMALL,
    "few/m1/sgd": {**SMALL, **SGD},
    "few/m1/lr-0.05": {**SMALL, "lr": 0.05, "adamw_lr": 5e-3},
    "few/m1/no-crop": {**FASTER, "batch_size": 32},
    "few/m1/base": FASTER,
    "few/m1/epochs-80": {**SMALL, "epochs": 80},
    "few/cnn": {"crop_area": 0.3, "batch_size": 32, "epochs": 41},
    "fifty/m1/base": {},
    "fifty/m1/batch-16": {"batch_size": 16},
    "fifty/m1/batch-16-crop-0.3": {"batch_size": 16, "crop_area": 0.3},
    "fifty/cnn/base": {"epochs": 41},
    "fifty/cnn/batch-16": {"batch_size": 16, "epochs": 41},
    "tiny/m1/base": {},
    "tiny/m1/batch-16-epochs-200": {"batch_size": 16, "epochs": 200},
    "tiny/cnn/batch-16-epochs-200": {"batch_size": 16, "epochs": 200},
}
# The chosen settings, which are the defaults on one's own images; a test compares them.
CHOSEN: dict[str, Any] = {**BASE, "batch_size": 32}
# Epochs of equal processor time: a step of the CNNs takes 0.69 and 1.08 times as long as M1's.
# Those of M1 are the defaults for folders with 400 and with 50 images of each class.
COMPARED = {
    "": {"m1": 30, "cnn": 43, "viewpoint": 28},
    "fifty/": {"m1": 62, "cnn": 89, "viewpoint": 57},
}
TRAIN, VALIDATION, TEST = 400, 500, 1000
# Training images of each class in cells that begin with a word.
SIZES = {"few": 150, "fifty": 50, "tiny": 8}
TEST_SEEDS = (0, 1)


def cells(budget: str) -> list[Cell]:
    """One training run per candidate, and the comparison."""
    if budget in ("smoke", "quick"):
        data = "own:mini" if budget == "smoke" else "own:photos-150"
        return [
            cell(name, name, data, {**CHOSEN, "epochs": 1 if budget == "smoke" else 3})
            for name in (("m1", "cnn") if budget == "smoke" else COMPARED[""])
        ]
    found = []
    for id, changes in CANDIDATES.items():
        first, *rest = id.split("/")
        images = f"-{SIZES[first]}" if first in SIZES else ""
        network = rest[0] if first in SIZES else first
        found.append(cell(id, network, f"own:photos{images}-validation", {**BASE, **changes}))
    for prefix, data in (("", "own:photos"), ("fifty/", "own:photos-50")):
        for name, epochs in COMPARED[prefix].items():
            settings = {**CHOSEN, "epochs": epochs}
            found.append(cell(f"{prefix}{name}/test", name, data, settings, TEST_SEEDS))
    return found


def cell(
    id: str,
    network: str,
    data: str,
    settings: dict[str, Any],
    seeds: tuple[int, ...] | None = None,
) -> Cell:
    """A training run on photos."""
    model, own = NETWORKS[network]
    made = training(
        id, model, data, "strong", measure, seeds, **{**settings, "model_settings": own}
    )
    return replace(made, data="fashion-mnist-mini" if data == "own:mini" else "cifar10")


def measure(settings: TrainSettings, seed: int, workspace: Workspace) -> Row:
    """Train on photos; also counts processor time, which other programs do not change."""
    from clustercaps.training.run_folder import RunFolder

    resumed = not workspace.fresh and RunFolder(workspace.folder).checkpoint.exists()
    images = photos(settings.data, workspace.data_dir)
    began = time.process_time()
    row = train_once(settings, seed, workspace, load=images)
    # What an interrupted run had used before is not known.
    return row if resumed else {**row, "cpu_seconds": round(time.process_time() - began, 1)}


def photos(name: str, data_dir: str | None) -> "GivenImages":
    """Training images, and those to test on: validation images if the name of the data says so."""
    import torch

    from clustercaps import data
    from clustercaps.data.make_photos import CLASSES, first_of_class
    from clustercaps.training.own_data import GivenImages

    sizes = [count for count in SIZES.values() if f"-{count}" in name]
    source, count = "cifar10", sizes[0] if sizes else TRAIN
    if name == "own:mini":
        source, count = "fashion-mnist-mini", 4
    whole = data.load(source, "train", data_dir)
    other = whole if name.endswith("-validation") else data.load(source, "test", data_dir)
    parts = []
    after = (VALIDATION, TRAIN) if other is whole else (TEST, 0)
    for images, wanted, skip in ((whole, count, 0), (other, *after)):
        chosen = torch.cat(
            [first_of_class(images.labels, label, wanted, skip) for label in range(CLASSES)]
        )
        parts.append((images.pixels[chosen], images.labels[chosen]))
    return GivenImages(parts[0], parts[1], whole.meta["class_names"][:CLASSES])


def table(rows: Sequence[Row], _: str) -> str:
    """The comparison on test images, then every candidate."""
    chosen_on = [row for row in rows if is_candidate(row)]
    parts = [compared([row for row in rows if not is_candidate(row)]), candidates(chosen_on)]
    return "\n\n".join(part for part in parts if part)


def is_candidate(row: Row) -> bool:
    """Whether a run was tested on validation images."""
    return str(row["data"]).endswith("-validation")


def compared(rows: Sequence[Row]) -> str:
    """One line per network and number of images."""
    header = ["cell", "training images", "parameters", *COLUMNS[:1], "test error %", *COLUMNS[2:]]
    lines = [
        [f"`{id}`", f"{row['train_images']:,}", f"{row['parameters']:,}", *columns(id, rows)]
        for id, row in by_cell(rows).items()
    ]
    return markdown_table(header, lines) if lines else ""


def candidates(rows: Sequence[Row]) -> str:
    """One line per candidate, the worse ones included."""
    header = ["candidate", "training images", "differs from `m1/base` by", *COLUMNS]
    lines = [
        [f"`{id}`", f"{row['train_images']:,}", changed(row), *columns(id, rows)]
        for id, row in by_cell(rows).items()
    ]
    return markdown_table(header, lines) if lines else ""


def by_cell(rows: Sequence[Row]) -> dict[str, Row]:
    """A row of every cell, in the order of the file."""
    return {row["cell"]: row for row in rows}


COLUMNS = ("epochs", "validation error %", "training error %", "processor time")


def columns(id: str, rows: Sequence[Row]) -> list[str]:
    """Epochs, error, training error and processor time of a cell."""
    own = [row for row in rows if row["cell"] == id]
    timed = spreads([row for row in own if "cpu_seconds" in row], "cpu_seconds")
    time_taken = f"{timed[id].mean:.0f} s" if timed else ""
    errors = [str(spreads(own, name)[id]) for name in ("test_error", "train_error")]
    return [str(own[0]["epochs"]), *errors, time_taken]


def changed(row: Row) -> str:
    """The settings of a candidate that are not those of `m1/base`, except its epochs."""
    settings = json.loads(row["settings"])
    before = {**BASE, "precision": "float32", "crop_area": 0.0, "erase": 0.0}
    own = {name: value for name, value in settings["model_settings"].items() if value != "avg"}
    # Epochs have a column of their own, and the size is the same for all.
    kept = {name: value for name, value in before.items() if name not in ("epochs", "img_size")}
    # The first runs did not have every setting yet.
    now = {name: settings.get(name, value) for name, value in kept.items()}
    other = {name: value for name, value in now.items() if value != kept[name]}
    return ", ".join(f"`{name} {value}`" for name, value in {**own, **other}.items())


def figure(rows: Sequence[Row], _: str) -> "Figure":
    """Errors of all cells."""
    errors = spreads(rows)
    groups: dict[str, dict[str, Spread]] = {}
    for id, row in by_cell(rows).items():
        name = "M1" if row["model"] == "m1" else "plain CNNs"
        groups.setdefault(name, {})[id] = errors[id]
    title = "8 classes, few images"
    return line_figure(groups, list(errors), title, "validation or test error (%)")


EXPERIMENT = Experiment(
    title="Images of one's own",
    cells=cells,
    table=table,
    figure=figure,
    seeds=ONE_SEED,
    notes="""\
This experiment is not in the paper. The tables list every run that was finished, the worse ones
included. Candidates were chosen on validation images only, 500 of each class, one seed: differences
below about `1.5` percentage points may be due to chance. With 50 images of each class M1 is about
as good as the narrow CNN; with more images the CNN has the lower error whatever was tried.
Processor time is that of one thread, with loading and testing; runs that were interrupted, or made
before it was recorded, have none.""",
)
