"""Trainings that are tested several times, whose whole curve is the result."""

from functools import cache
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.cells import Row, Workspace
from clustercaps.experiments.harness.training_cells import train_once
from clustercaps.training.settings import TrainSettings

if TYPE_CHECKING:
    from clustercaps.data import Images


def train_and_follow(
    settings: TrainSettings, seed: int, workspace: Workspace, **options: Any
) -> Row:
    """Train, and store the accuracies of every test."""
    from clustercaps.training.run_folder import RunFolder

    row = train_once(settings, seed, workspace, **options)
    folder = RunFolder(workspace.folder)
    lines, result = folder.metrics(), folder.result or {}
    curves = {
        name: [round(100 - line[f"{part}_error"], 4) for line in lines]
        for name, part in (("familiar", "test"), ("novel", "novel"))
    }
    novel = result["novel_images"]
    return {
        **row,
        **{"views": settings.views, "novel_images": novel},
        **{"images_seen": settings.epochs * (settings.epoch_images or row["train_images"])},
        **{"weights": "running average" if settings.average else "current"},
        "tested": f"after every epoch, on {row['test_images']:,} images of familiar and {novel:,} "
        "of novel viewpoints",
        **{"familiar_best": max(curves["familiar"])},
        **{f"{name}_last": curve[-1] for name, curve in curves.items()},
        **{f"{name}_curve": " ".join(map(str, curve)) for name, curve in curves.items()},
    }


def train_and_track(settings: TrainSettings, seed: int, workspace: Workspace) -> Row:
    """Train, and store training time and error of every test."""
    from clustercaps.training.run_folder import RunFolder

    row = train_once(settings, seed, workspace)
    tests = [line for line in RunFolder(workspace.folder).metrics() if "test_error" in line]
    return {
        **row,
        "tested": f"{len(tests)} times; the table has the last epoch, never the best",
        "seconds_curve": " ".join(str(line["seconds"]) for line in tests),
        "error_curve": " ".join(f"{line['test_error']:.4f}" for line in tests),
    }


def train_on_few(settings: TrainSettings, seed: int, workspace: Workspace) -> Row:
    """Train on the smallest rendered dataset."""
    return train_and_follow(settings, seed, workspace, load=few)


@cache
def few(name: str, split: str, _: str | None = None) -> "Images":
    """The smallest rendered dataset: 40 pairs per split, rendered in this process."""
    import numpy as np
    import torch

    from clustercaps.data import Images, info
    from clustercaps.data.rendering import SMALL as FEW
    from clustercaps.data.rendering import render_split

    rendered = render_split(split, FEW, 0)
    codes = torch.from_numpy(rendered.info.astype(np.int64))
    meta: dict[str, Any] = {"name": name, "split": split, "source": "rendered"}
    meta |= {"class_names": info(name).class_names, "num_classes": info(name).num_classes}
    meta |= {"elevation": codes[:, 1], "azimuth": codes[:, 2]}
    labels = torch.from_numpy(rendered.labels.astype(np.int64))
    return Images(torch.from_numpy(rendered.pixels), labels, meta)
