"""Every experiment as a user would start it, with the smallest budget: files and values."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import clustercaps as cc
from clustercaps import data
from clustercaps.cli import main
from clustercaps.experiments import EXPERIMENTS, affine, get_experiment
from clustercaps.experiments.harness.cells import Cell, Row
from clustercaps.experiments.harness.pictures import unpack
from clustercaps.experiments.harness.store import read_rows
from clustercaps.experiments.harness.transformations import names
from clustercaps.models.registry import count_parameters

TEST_IMAGES = 100
approx = pytest.approx


@pytest.fixture(autouse=True)
def _small_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data.load

    def load(name: str, split: str = "train", *args: Any, **kwargs: Any) -> data.Images:
        images = whole(name, split, *args, **kwargs)
        return images.subset(slice(0, TEST_IMAGES)) if split == "test" else images

    monkeypatch.setattr(data, "load", load)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke(name: str, tmp_path: Path) -> None:
    assert main(["reproduce", name, "--budget", "smoke", "--out", str(tmp_path)]) == 0
    path = tmp_path / f"{name}-smoke.csv"
    rows = read_rows(path)
    cells = get_experiment(name).cells("smoke")
    assert [row["cell"] for row in rows] == [cell.id for cell in cells]
    assert [row["settings_hash"] for row in rows] == [cell.hash for cell in cells]
    for row, cell in zip(rows, cells, strict=True):
        assert row["commit"]
        assert json.loads(row["settings"]) == cell.settings
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, int | float))
        run = tmp_path / "runs" / path.stem / cell.id / f"seed-{row['seed']}"
        if "test_error" in row:
            check_training(row, cell, run)
        CHECKS.get(name, check_training)(row, cell, run)
    check_files(path, len(cells))


def check_files(path: Path, cells: int) -> None:
    text = path.with_suffix(".md").read_text()
    for expected in ("| --- |", "- Machine: ", f"Completed: {cells} of {cells}"):
        assert expected in text
    with Image.open(path.with_suffix(".png")) as figure:
        assert min(figure.size) > 300
    assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def check_training(row: Row, cell: Cell, run: Path) -> None:
    """The row says what the run's files say: settings, counts of the last test, saved network."""
    for name in ("model", "data", "recipe", "epochs"):
        assert row[name] == cell.settings[name]
    check_test(row, json.loads((run / "confusion.json").read_text())["test"])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == row["epochs"]
    assert row["train_error"] == lines[-1]["train_error"]
    seen = cell.settings["epoch_images"] or row["train_images"]
    wrong = row["train_error"] * seen / 100
    assert 0 <= wrong <= seen
    assert wrong == approx(round(wrong))
    assert row["train_seconds"] >= 0
    model = cc.from_pretrained(run / "model")
    size = {"in_chans": model.in_chans, "num_classes": model.num_classes}
    settings = {**cell.settings["model_settings"], **size, "img_size": model.img_size}
    counted = count_parameters(row["model"], **settings)
    assert row["parameters"] == counted == sum(p.numel() for p in model.parameters())


def check_test(row: Row, counts: dict[str, Any]) -> None:
    confusion = torch.tensor(counts["confusion"])
    images = int(confusion.sum())
    errors = images - int(confusion.trace())
    assert row["test_images"] == images > 0
    assert row["test_error"] == approx(100 * errors / images)
    assert row["top5_error"] == approx(100 * counts["top5_misses"] / images)
    assert 0 <= row["top5_error"] <= row["test_error"] <= 100
    assert row["test_loss"] == approx(counts["loss_sum"] / images)
    assert row["test_loss"] > 0


def check_parameters(row: Row, cell: Cell, _: Path) -> None:
    task = cell.settings["changes"]
    assert row["parameters"] == count_parameters(row["model"], **task)
    assert row["parameters_10_way"] == count_parameters(row["model"], **task | {"num_classes": 10})
    printed = float(row["printed"].removesuffix("K")) * 1000
    assert row["percent_off"] == approx(100 * (row["parameters"] - printed) / printed)
    # All of the paper's counts of M1 and S3 have three digits.
    is_near = abs(row["parameters"] - printed) < 1000
    assert (row["verdict"] == "fits") == is_near


def check_routing_weights(row: Row, cell: Cell, _: Path) -> None:
    ratios, limits = json.loads(row["ratios"]), json.loads(row["limits"])
    assert row["looked_at"] == cell.settings["measurement"]["images"] == TEST_IMAGES
    assert row["capsule_dims"] == len(ratios) == len(limits) > 0
    assert row["above_shuffled"] == sum(r > li for r, li in zip(ratios, limits, strict=True))
    assert row["variance_ratio"] == approx(statistics.median_low(ratios), abs=1e-5)
    for bars in json.loads(row["bars"]):
        # Weights of all clusters sum to one, and so do their means over the images of a class.
        means = torch.tensor(bars["mean"], dtype=torch.float64)
        assert means.min() >= 0
        assert means.sum(1).tolist() == approx([1.0] * len(means), abs=1e-4)
    # Constant weights depend on nothing.
    assert (row["weight_sd"] == row["variance_ratio"] == 0) == (row["cell"] == "uniform")


def check_affine(row: Row, cell: Cell, _: Path) -> None:
    assert row["looked_at"] == cell.settings["measurement"]["images"]
    errors = {name: value for name, value in row.items() if name.startswith("mse ")}
    # Of pixels between 0 and 1.
    assert all(0 < value < 1 for value in errors.values())
    for same in ("mse R-0", "mse R-0, channels untouched"):
        assert errors[same] == approx(errors["mse identity"])
    for end in ("", ", channels untouched"):
        values = [errors[f"mse {name}{end}"] for name in names()]
        assert errors[f"mse average{end}"] == approx(statistics.mean(values))
    wanted, drawn = unpack(row["wanted"]), unpack(row["drawn"])
    assert wanted.shape == drawn.shape == (affine.EXAMPLES, 1 + len(names()), 28, 28)
    assert 0 <= wanted.min() < wanted.max() <= 1
    assert 0 <= drawn.min() <= drawn.max() <= 1


def check_disentangle(row: Row, cell: Cell, _: Path) -> None:
    effects = torch.tensor(json.loads(row["effects"]), dtype=torch.float64)
    dims, properties = effects.shape
    assert row["looked_at"] == cell.settings["measurement"]["images"]
    assert row["capsule_dim"] == dims
    assert effects.min() >= 0
    # The stored effects have four digits.
    assert row["effect"] == approx(float(effects.sum(1).mean()), abs=1e-4 * properties)
    for name in ("concentration", "random_concentration"):
        assert 1 / properties <= row[name] <= 1
        assert 1 / properties <= row[f"wide_{name}"] <= 1
    for name in ("axis", "fitted", "rotated"):
        assert 0 < row[f"{name}_share"] <= 1
    assert len(json.loads(row["explained"])) == properties
    assert unpack(row["wide_strips"]).shape == unpack(row["strips"]).shape
    for name in ("fitted_strips", "wide_fitted_strips"):
        assert unpack(row[name]).shape[0] == properties
    assert 0 <= row["above_random_fraction"] <= 1
    assert 0 < row["drawn_mse"] < 1
    assert row["capsule_length"] > 0
    assert unpack(row["strips"]).shape[0] == dims


def check_viewpoints(row: Row, cell: Cell, run: Path) -> None:
    counts = json.loads((run / "confusion.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for name, column in (("familiar", "test_error"), ("novel", "novel_error")):
        curve = [float(value) for value in str(row[f"{name}_curve"]).split()]
        assert curve == approx([100 - line[column] for line in lines], abs=1e-4)
        assert row[f"{name}_last"] == curve[-1]
        if name == "familiar":
            assert row["familiar_best"] == max(curve)
    confusion = torch.tensor(counts["novel"]["confusion"])
    assert row["novel_images"] == int(confusion.sum())
    right = 100 * int(confusion.trace()) / row["novel_images"]
    assert row["novel_last"] == approx(right, abs=1e-4)
    assert row["familiar_last"] == approx(100 - row["test_error"], abs=1e-4)
    assert row["images_seen"] == row["epochs"] * cell.settings["epoch_images"]


def check_imagenet(row: Row, cell: Cell, _: Path) -> None:
    if row["cell"] != "cost":
        assert (row["top1"], row["top5"]) == (100 - row["test_error"], 100 - row["top5_error"])
        return
    assert row["parameters"] == count_parameters("imagenet_m4")
    images, epochs = row["cost_images"], row["cost_epochs"]
    assert row["run_exaflop"] == approx(3 * row["forward_gflop"] * images * epochs / 1e9)
    for name, speed in cell.settings["speeds"].items():
        assert row[f"days, {name}"] == approx(row["run_exaflop"] * 1e18 / speed / 86400)


# What else a row of an experiment promises, besides what every training does.
CHECKS = {
    "parameters": check_parameters,
    "routing-weights": check_routing_weights,
    "affine": check_affine,
    "disentangle": check_disentangle,
    "viewpoints": check_viewpoints,
    "imagenet": check_imagenet,
}
