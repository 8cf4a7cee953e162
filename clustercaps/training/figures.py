"""The figures of a finished run."""

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clustercaps import data
from clustercaps.figures import routing
from clustercaps.kernels import FUSED_ROUTINGS
from clustercaps.models import CapsuleNet, get_preset
from clustercaps.training.batches import open_split
from clustercaps.training.finished import Trained, finished_run, last_test
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.scoring import Score
from clustercaps.training.settings import TrainSettings
from clustercaps.utils.plotting import new_figure, save, style_of
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
        trained, images = Trained.open(path), open_split(settings, "test", data_dir)
        assert isinstance(trained.model, CapsuleNet)
        assert isinstance(images, data.Images)
        first = [int((images.labels == c).nonzero()[0]) for c in images.labels.unique()[:6]]
        pixels = trained.prepare(images.pixels[first])
        drawn.append(save(routing(trained.model, pixels), path / "routing.png"))
    return drawn


def shows_routing(settings: TrainSettings) -> bool:
    """Whether a run has a network with routing weights, and its images are in memory."""
    capsules = issubclass(get_preset(settings.model).network, CapsuleNet)
    routing = settings.model_settings.get("routing", "cluster")
    return capsules and routing in FUSED_ROUTINGS and not data.is_streamed(settings.data)


def learning_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> Path:
    """Draw training loss, training error and test error over the epochs of several runs.

    Args:
        runs: The lines of `metrics.jsonl` of each run.
        path: Path of the PNG.
    """
    figure = new_figure(9.0, 3.6)
    left, right = figure.subplots(1, 2)
    for number, (name, lines) in enumerate(runs.items()):
        colour, _ = style_of(number)
        epochs = [line["epoch"] for line in lines]
        left.plot(epochs, [line["train_loss"] for line in lines], color=colour, label=name)
        right.plot(
            epochs, [line["train_error"] for line in lines], color=colour, ls="--", alpha=0.6
        )
        tested = [line for line in lines if "test_error" in line]
        marker = "o" if len(tested) < 40 else None
        right.plot(
            [line["epoch"] for line in tested],
            [line["test_error"] for line in tested],
            color=colour,
            marker=marker,
            ms=3,
        )
    left.set(xlabel="epoch", ylabel="training loss", ylim=(0, None))
    right.set(xlabel="epoch", ylabel="error (%)", ylim=(0, None))
    right.plot([], [], color="0.3", marker="o", ms=3, label="test")
    right.plot([], [], color="0.3", ls="--", alpha=0.6, label="training (augmented)")
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=8)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    return save(figure, path)


def confusion_figure(score: Score, class_names: Sequence[str], path: Path) -> Path:
    """Draw the confusion matrix in percent of each true class, with counts if they fit."""
    counts = score.confusion.double()
    shares = 100 * counts / counts.sum(1, keepdim=True).clamp(min=1)
    classes = len(class_names)
    class_names = [printable(name) for name in class_names]
    side = max(4.0, 0.5 * classes) if classes <= 30 else 10.0
    figure = new_figure(side + 1.6, side + 1)
    ax = figure.subplots()
    image = ax.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=100)
    if classes <= 30:
        ax.set_xticks(range(classes), class_names, rotation=45, ha="right")
        ax.set_yticks(range(classes), class_names)
        for (row, column), count in zip(
            ((r, c) for r in range(classes) for c in range(classes)),
            score.confusion.flatten().tolist(),
            strict=True,
        ):
            if count:
                colour = "white" if shares[row, column] > 55 else "0.2"
                ax.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=7)
    ax.set(xlabel="predicted class", ylabel="true class")
    ax.set_title(f"error {score.error:.2f} % of {score.total:,} images", fontsize=10)
    figure.colorbar(image, ax=ax, shrink=0.8, label="% of the true class")
    return save(figure, path)
