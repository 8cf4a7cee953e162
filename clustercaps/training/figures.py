"""The figures of a finished run."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from clustercaps import data
from clustercaps.figures import routing
from clustercaps.kernels import FUSED_ROUTINGS
from clustercaps.models import CapsuleNet, get_preset
from clustercaps.training.batches import open_split
from clustercaps.training.finished import Trained, finished_run, last_test
from clustercaps.training.range_test import RangeTest
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.scoring import Score
from clustercaps.training.settings import TrainSettings
from clustercaps.utils.plotting import (
    COLUMN,
    PAGE,
    TINY,
    add_legend,
    logarithmic,
    new_figure,
    save,
    style_of,
    styled,
    whole_numbers,
)
from clustercaps.utils.tables import printable


def draw_run(path: Path | str, data_dir: str | None = None) -> list[Path]:
    """Draw learning curve, confusion matrix and, for a capsule network, routing weights.

    They are drawn from the files of the run. Only the routing weights need the network.

    Args:
        path: Run folder.
        data_dir: Folder with the official files of the dataset, if not the cache.
    """
    if find_spec("matplotlib") is None:
        print("no figures: pip install 'clustercaps[figures]'", file=sys.stderr)
        return []
    path = Path(path)
    settings, result = finished_run(path)
    drawn = [learning_curves({str(path): RunFolder(path).metrics()}, path / "learning-curve.png")]
    for part, score in last_test(path, data_dir).items():
        name = "confusion.png" if part == "test" else f"confusion-{part}.png"
        drawn.append(confusion_figure(score, result["class_names"], path / name))
    if shows_routing(settings):
        trained = Trained.open(path)
        assert isinstance(trained.model, CapsuleNet)
        pixels, labels = one_of_each_class(settings, data_dir)
        names = [printable(name) for name in trained.class_names]
        shown = routing(trained.model, trained.prepare(pixels), labels=labels, class_names=names)
        drawn.append(save(shown, path / "routing.png"))
    return drawn


def shows_routing(settings: TrainSettings) -> bool:
    """Whether a run has a network with routing weights, and its images can be read again."""
    capsules = issubclass(get_preset(settings.model).network, CapsuleNet)
    routing = settings.model_settings.get("routing", "cluster")
    return capsules and routing in FUSED_ROUTINGS and not settings.data.startswith("own:")


def one_of_each_class(
    settings: TrainSettings, data_dir: str | None, most: int = 6
) -> tuple[UInt8[Tensor, "images channels height width"], list[int]]:
    """The first test image of each of the first classes of a run, and their classes."""
    # Of a folder, only these images are read.
    images = open_split(
        replace(settings, memory_gb=0.0, flips="random", erase=0.0), "test", data_dir
    )
    first = [int((images.labels == c).nonzero()[0]) for c in images.labels.unique()[:most]]
    labels = images.labels[first].tolist()
    if isinstance(images, data.Images):
        return images.pixels[first], labels
    return torch.stack([images[number][0] for number in first]), labels


@styled
def learning_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> Path:
    """Draw training loss, training error and test error over the epochs of several runs.

    Args:
        runs: The lines of `metrics.jsonl` of each run.
        path: Path of the PNG.
    """
    figure = new_figure(PAGE, 2.6 + 0.15 * len(runs))
    left, right = figure.subplots(1, 2)
    for number, (name, lines) in enumerate(runs.items()):
        colour, marker = style_of(number)
        # A few markers per curve; they are what shows of a run of one epoch.
        curve: dict[str, Any] = {"color": colour, "marker": marker, "ms": 3}
        curve["markevery"] = max(1, len(lines) // 12)
        hollow = {**curve, "ls": "--", "mfc": "white"}
        left.plot(*_column(lines, "train_loss"), **hollow)
        right.plot(*_column(lines, "train_error"), **hollow)
        right.plot(
            *_column(lines, "test_error"), **{**curve, "markevery": 1}, label=printable(name)
        )
    last = max((line["epoch"] for lines in runs.values() for line in lines), default=1)
    for ax, ylabel in ((left, "training loss"), (right, "error (%)")):
        ax.set(xlabel="epoch", ylabel=ylabel)
        ax.set_ylim(0, None)
        ax.grid()
        whole_numbers(ax, last)
    grey: dict[str, Any] = {"color": "0.3", "marker": "o", "ms": 3}
    right.plot([], [], label="solid: test", **grey)
    right.plot([], [], ls="--", mfc="white", label="dashed: training (augmented)", **grey)
    add_legend(figure)
    return save(figure, path)


def _column(lines: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """The epochs that have a value, and their values."""
    found = [line for line in lines if name in line]
    return [line["epoch"] for line in found], [line[name] for line in found]


@styled
def range_figure(found: RangeTest, path: Path) -> Path:
    """Draw the loss over the learning rate of a range test, and the suggested rate."""
    figure = new_figure(COLUMN, 2.4)
    ax = figure.subplots()
    ax.plot(found.rates, found.losses, color="0.75", lw=0.8, label="one step")
    ax.plot(found.rates, found.smoothed, color=style_of(0)[0], label="smoothed")
    ax.axvline(found.suggestion, color=style_of(1)[0], ls="--", label="suggested")
    ax.set(xlabel="learning rate", ylabel="training loss")
    logarithmic(ax, "x")
    ax.grid()
    add_legend(figure)
    return save(figure, path)


@styled
def confusion_figure(score: Score, class_names: Sequence[str], path: Path) -> Path:
    """Draw the confusion matrix in percent of each true class, with counts if they fit."""
    counts = score.confusion.double()
    shares = 100 * counts / counts.sum(1, keepdim=True).clamp(min=1)
    classes = len(class_names)
    class_names = [printable(name) for name in class_names]
    # Inches: a count needs a quarter of one; without counts, half a page is enough.
    side = min(max(2.6, 0.27 * classes), PAGE) if classes <= 30 else 4.5
    figure = new_figure(side + 1.5, side + 0.8)
    ax = figure.subplots()
    image = ax.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=100)
    if classes <= 30:
        ax.set_xticks(range(classes), class_names, rotation=45, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(classes), class_names)
        for row, column in score.confusion.nonzero().tolist():
            colour = "white" if shares[row, column] > 55 else "0.2"
            count = str(int(score.confusion[row, column]))
            ax.text(column, row, count, ha="center", va="center", color=colour, fontsize=TINY)
    ax.set(xlabel="predicted class", ylabel="true class")
    ax.set_title(f"error {score.error:.2f} % of {score.total:,} images")
    ax.spines[:].set_visible(True)
    figure.colorbar(image, ax=ax, shrink=0.8, label="% of the true class")
    return save(figure, path)
