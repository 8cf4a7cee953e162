r"""The ImageNet network, M4 after a ResNet stem: top-1, top-5, and the cost of a run.

`full` trains it on a folder with `train/CLASS/IMAGE` and `val/CLASS/IMAGE` (--data-dir). The paper
does not say for how long it trained; we use its protocol for the other datasets, and one seed. The
cell `cost` needs no images: it counts the operations of the run. On several machines, which must
share the results folder:

    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \
        -m clustercaps reproduce imagenet --budget full --data-dir /data/imagenet --workers 8

`quick` is for a folder of about ten classes and 10,000 images: 64x64 pixels, one epoch of the fast
recipe. Estimate: 157 steps of about 900 GFLOP, 12 to 16 minutes on two cores.

`night` uses the same folder as `quick`: 64x64 pixels, three epochs of the strong recipe.

`smoke` trains a tiny network on a folder of images that it generates.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustercaps.data.errors import need
from clustercaps.experiments.harness.cells import Cell, Experiment, Row, Workspace
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.plots import finish
from clustercaps.experiments.harness.training_cells import train_once, training
from clustercaps.experiments.paper import paper
from clustercaps.models import get_preset
from clustercaps.training.settings import TrainSettings
from clustercaps.utils.plotting import COLUMN, add_legend, new_figure, style_of, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODEL, DATA = "imagenet_m4", "imagenet"
# Assumed sustained speeds, to convert operations to days; real speeds must be measured.
SPEEDS = {"1 GPU at 10 TFLOP/s": 1e13, "8 GPUs at 50 TFLOP/s": 4e14}


def cells(budget: str) -> list[Cell]:
    """The cost of the full run, and a training run."""
    cost = {"model": MODEL, "images": paper()["imagenet"]["train_images"], "speeds": SPEEDS}
    cost["epochs"] = get_preset("imagenet_m4").get_recipe("paper")["epochs"]
    if budget == "full":
        run = training(MODEL, MODEL, DATA, "paper", train_and_score)
    elif budget == "night":
        run = training(MODEL, MODEL, DATA, "strong", train_and_score, epochs=3, img_size=64)
    elif budget == "quick":
        run = training(MODEL, MODEL, DATA, "fast", train_and_score, epochs=1, img_size=64)
    else:
        tiny: dict[str, Any] = {
            "model_settings": {"dim": 2, "votes": 4, "channels": 2},
            "img_size": 32,
        }
        run = training(MODEL, MODEL, DATA, "fast", train_on_own, epochs=1, batch_size=8, **tiny)
    return [Cell("cost", cost, partial(count_cost, cost), seeded=False), run]


def count_cost(cost: dict[str, Any], _: int, __: Workspace) -> Row:
    """Operations of the whole run, two per multiply-add, and days at the assumed speeds."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from clustercaps.models import create_model

    with torch.device("meta"):
        model = create_model(cost["model"])
        image = torch.empty(1, model.in_chans, *model.img_size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(image)
    forward = counter.get_total_flops()
    # Gradients of weights and of inputs cost a forward pass each.
    total = 3 * forward * cost["images"] * cost["epochs"]
    days = {f"days, {name}": total / speed / 86400 for name, speed in cost["speeds"].items()}
    return {
        **{"model": cost["model"], "parameters": sum(p.numel() for p in model.parameters())},
        **{"cost_images": cost["images"], "cost_epochs": cost["epochs"]},
        **{"forward_gflop": forward / 1e9, "run_exaflop": total / 1e18, **days},
    }


def train_and_score(settings: TrainSettings, seed: int, workspace: Workspace) -> Row:
    """Train, and convert errors to accuracies, as in the paper."""
    row = train_once(settings, seed, workspace)
    return {**row, "top1": 100 - row["test_error"], "top5": 100 - row["top5_error"]}


def train_on_own(settings: TrainSettings, seed: int, workspace: Workspace) -> Row:
    """Train on generated images."""
    folder = workspace.folder.with_name(f"{workspace.folder.name}-images")
    write_images(folder)
    return train_and_score(settings, seed, replace(workspace, data_dir=str(folder)))


def write_images(root: Path) -> None:
    """Write a folder like ImageNet's with 6 classes: random images, one colour per class."""
    pil = need("PIL.Image", "write image files")
    chance = random.Random(0)
    for split, count in (("train", 4), ("val", 2)):
        for label in range(6):
            folder = root / split / f"class-{label}"
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                noise = bytes(
                    min(255, chance.randrange(120) + 120 * (label >> channel & 1))
                    for _ in range(48 * 40)
                    for channel in range(3)
                )
                suffix = ".png" if number % 2 else ".jpg"
                pil.frombytes("RGB", (48, 40), noise).save(folder / f"{number}{suffix}")


def table(rows: Sequence[Row], _: str) -> str:
    """Accuracies next to the paper's, then the cost of the full run."""
    printed = paper()["imagenet"]["accuracy"]
    lines = [
        [f"{entry['name']}, as printed", f"{entry['top1']:.2f}", f"{entry['top5']:.2f}"]
        for entry in printed.values()
    ]
    for row in rows:
        if "top1" in row:
            name = f"ours, seed {row['seed']}, {row['train_images']:,} images"
            lines.append([name, f"{row['top1']:.2f}", f"{row['top5']:.2f}"])
    text = markdown_table(["network", "top-1 accuracy %", "top-5 accuracy %"], lines)
    for row in rows:
        if "run_exaflop" in row:
            text += f"\n\n{describe_cost(row)}"
    return text


def describe_cost(row: Row) -> str:
    """The cost of the full run, in a sentence and a table."""
    days = [
        [name.removeprefix("days, "), f"{value:.1f}"]
        for name, value in row.items()
        if name.startswith("days, ")
    ]
    return (
        f"The full run takes {row['cost_images']:,} images x {row['cost_epochs']} epochs x 3 x "
        f"{row['forward_gflop']:.2f} GFLOP = {row['run_exaflop']:.1f} EFLOP, counted from shapes "
        f"({row['parameters']:,} parameters; the factor 3 is forward, gradient of weights and "
        "gradient of inputs). At assumed speeds, not measured ones, this takes\n\n"
        + markdown_table(["sustained speed", "days"], days)
    )


def has_own(rows: Sequence[Row]) -> bool:
    """Whether a network was trained here; a figure of the paper's numbers alone is of no use."""
    return any("top1" in row for row in rows)


@styled
def figure(rows: Sequence[Row], _: str) -> "Figure":
    """Top-1 and top-5 accuracy of the paper's networks and of ours."""
    names = {"top1": "top-1", "top5": "top-5"}
    printed = paper()["imagenet"]["accuracy"].values()
    series = {f"{e['name']}, paper": [e[key] for key in names] for e in printed}
    for row in rows:
        if "top1" in row:
            series[f"ours, seed {row['seed']}"] = [row[key] for key in names]
    drawn = new_figure(COLUMN, 2.4)
    ax = drawn.subplots()
    for number, (name, values) in enumerate(series.items()):
        colour, marker = style_of(number)
        # Side by side, so that close values do not overlap.
        shift = 0.15 * (number - (len(series) - 1) / 2)
        ax.plot([shift, 1 + shift], values, marker, color=colour, label=name)
    ax.set(ylim=(0, 100), ylabel="accuracy (%)")
    finish(ax, list(names.values()))
    add_legend(drawn)
    return drawn


EXPERIMENT = Experiment(
    title="ImageNet",
    cells=cells,
    table=table,
    figure=figure,
    has_figure=has_own,
    seeds={"smoke": (0,), "quick": (0,), "night": (0,), "full": (0,)},
    notes="""\
The paper gives neither the number of epochs nor the strides of the stem for this network: we use
its protocol for the other datasets, and the strides of a ResNet. It mentions 100,000 validation
images; the published validation set has half as many. Almost all of the arithmetic is in the first
capsule layer, whose votes read 256 feature maps. A batch of 64 gives eight images to each of eight
processes; fewer would be too few for the batch norm of the stem. On two machines that share a
folder, run on each:

    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        -m clustercaps reproduce imagenet --budget full --data-dir FOLDER --workers 8""",
)
