"""Networks are trained, tested and measured at the image size of their paper."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clustercaps import data
from clustercaps.data import Images
from clustercaps.experiments.harness.cells import Workspace
from clustercaps.experiments.harness.measured_cells import View, measured_training, untrained
from clustercaps.training import train
from clustercaps.training.finished import Trained
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.settings import resolve

CAPSNET = {"width": 4, "types": 2}
# Network and dataset -> small settings, published size, children that one parent hears.
NETWORKS: dict[tuple[str, str], tuple[dict[str, Any], int, int]] = {
    ("capsnet", "mnist"): (CAPSNET, 28, 2 * 6 * 6),
    ("capsnet_cifar10", "cifar10"): (CAPSNET, 24, 2 * 12 * 12),
    ("capsnet_smallnorb", "smallnorb"): (CAPSNET, 32, 2 * 8 * 8),
    ("efficient_capsnet_smallnorb", "smallnorb"): ({"widths": [4, 4, 4, 16]}, 48, 2),
    ("frms_capsnet", "fashion-mnist"): ({"widths": [4, 4], "types": 2, "dim": 3}, 64, 18),
    ("heinsen_smallnorb", "rendered-norb"): (
        {"width": 4, "types": 2, "parents": 3, "side": 2},
        *(96, 2 * 9 * 9),
    ),
}


def few(name: str, split: str = "train", *_: object, **__: object) -> Images:
    """Random images in the shape of a dataset."""
    known, count = data.info(name), 20 if split == "train" else 10
    generator = torch.Generator().manual_seed(len(split))
    pixels = torch.randint(0, 256, (count, *known.shape), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % known.num_classes
    meta = {"class_names": known.class_names, "num_classes": known.num_classes}
    return Images(pixels, labels, {"name": name, "split": split, **meta})


@pytest.fixture(autouse=True)
def _random_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", few)


@pytest.mark.parametrize(("name", "dataset"), NETWORKS)
def test_trained_and_evaluated_at_its_size(name: str, dataset: str, tmp_path: Path) -> None:
    network, side, children = NETWORKS[name, dataset]
    settings = resolve(name, dataset, epochs=1, batch_size=10, model_settings=network)
    result = train(settings, tmp_path / "run")
    assert (result["img_size"], result["children"]) == (side, children)
    trained = Trained.open(tmp_path / "run")
    assert trained.model.img_size == (side, side)
    assert result["parameters"] == sum(p.numel() for p in trained.model.parameters())
    assert trained.score(few(dataset, "test")).errors == result["test_errors"]
    stored = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert stored["img_size"] == (0 if side == 32 else side)


def test_a_run_without_a_size_goes_on_at_32(tmp_path: Path) -> None:
    """As a version wrote it that trained every network on 32x32."""
    out = tmp_path / "run"
    settings = resolve("capsnet", "mnist", epochs=1, batch_size=10, model_settings=CAPSNET)
    train(resolve("capsnet", "mnist", img_size=32, epochs=1, model_settings=CAPSNET), out)
    stored = json.loads((out / "settings.json").read_text())
    del stored["img_size"]
    (out / "settings.json").write_text(json.dumps(stored))
    older = RunFolder(out).settings
    assert older is not None
    assert train(older, out, resume=True)["children"] == 2 * 8 * 8
    assert Trained.open(out).prepare(few("mnist").pixels).shape[-1] == 32
    with pytest.raises(ValueError, match="img_size was 0, now 28"):
        train(settings, out, resume=True)


def test_experiments_measure_at_the_size_of_the_network(tmp_path: Path) -> None:
    seen = []

    def look(view: View, *_: object) -> dict[str, Any]:
        seen.append(tuple(view.images.shape[1:]))
        assert view.pixels.shape == view.images.shape
        return {"looked": 1}

    size = {"epochs": 1, "batch_size": 10, "model_settings": {"dim": 2}}
    trained = measured_training("x", "class_capsules", "mnist", "fast", look, {"images": 5}, **size)
    fresh = untrained("y", "class_capsules", "mnist", look, {"images": 5}, {"dim": 2})
    for cell in (trained, fresh):
        row = cell.measure(0, Workspace(tmp_path / cell.id))
        assert (row["img_size"], row["children"], row["looked"]) == (28, 4, 1)
        older = {k: v for k, v in cell.settings.items() if k != "img_size"}
        assert cell.changes(older)
    assert seen == [(1, 28, 28)] * 2
