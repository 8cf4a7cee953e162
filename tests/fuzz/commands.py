"""Command lines to damage, in a folder with a run, an image, a dataset and results."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from helpers.small_sets import MAKERS
from PIL import Image

import clustercaps.bench.models
import clustercaps.training
from clustercaps.data import sources
from clustercaps.data.errors import DataError
from clustercaps.data.published import PUBLISHED
from clustercaps.data.registries import REGISTRIES
from clustercaps.models import create_model
from fuzz.targets import ROOT, RUN

COMMANDS: dict[str, list[str]] = {
    "models": ["models", "m1"],
    "data check": ["data", "check", "fashion-mnist-mini"],
    "data check --data-dir": ["data", "check", "mnist", "--data-dir", "mnist"],
    "data check folder": ["data", "check", "folder:pictures"],
    "data show": ["data", "show", "fashion-mnist-mini", "--split", "test", "--out", "a.png"],
    "train": ["train", "m1", "--data", "cifar10", "--epochs", "2", "--lr", "0.1", "--out", "new"],
    "train --set": [
        "train",
        "s1",
        "--set",
        "votes=8",
        "--set",
        "routing=uniform",
        "--seeds",
        "0,1",
    ],
    "predict": ["predict", "run", "shoe.png", "pictures", "--top", "2", "--device", "cpu"],
    "evaluate": ["evaluate", "run", "--data", "folder:pictures", "--split", "test"],
    "compare": ["compare", "run", "run", "--figure", "curves.png"],
    "reproduce": ["reproduce", "ablation", "--list", "--budget", "smoke", "--seeds", "0"],
    "report": ["report", "--results", "results", "--page", "page.md"],
    "bench": ["bench", "models", "--models", "m1", "--quick", "--batch", "2", "--size", "8"],
}


def prepare(folder: Path) -> None:
    """Write what the commands read."""
    shutil.copytree(RUN, folder / "run")
    names = [f"class-{number}" for number in range(10)]
    result = json.loads((RUN / "result.json").read_text())
    (folder / "run" / "result.json").write_text(json.dumps({**result, "class_names": names}))
    noise = np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)
    Image.fromarray(noise).save(folder / "shoe.png")
    for name in names:
        for split in ("train", "test"):
            (folder / "pictures" / split / name).mkdir(parents=True)
            shutil.copy(folder / "shoe.png", folder / "pictures" / split / name)
    (folder / "mnist").mkdir()
    for name, blob in MAKERS["mnist"](20, np.random.default_rng(0)).items():
        (folder / "mnist" / name).write_bytes(blob)
    (folder / "results").mkdir()
    shutil.copy(ROOT / "results" / "ablation-quick.csv", folder / "results")


def stay_small() -> None:
    """No downloads, no rendering; training and benchmarks end before their first step."""

    def refuse(*_: object) -> None:
        raise DataError("rendered-norb: not rendered while fuzzing")

    def build(settings: Any, *_: object, **__: object) -> None:
        with torch.device("meta"):
            create_model(settings.model, img_size=settings.side, **settings.model_settings)
        sys.exit(0)

    for name, published in list(PUBLISHED.items()):
        PUBLISHED[name] = type(published)(**{**vars(published), "addresses": ()})
    REGISTRIES.clear()
    vars(sources)["render_into"] = refuse
    clustercaps.training.train = build  # type: ignore[assignment]
    clustercaps.training.train_seeds = build  # type: ignore[assignment]
    clustercaps.bench.models.run = lambda _: sys.exit(0)  # type: ignore[assignment]
