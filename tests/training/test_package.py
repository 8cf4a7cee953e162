"""Weights inside the package: put there from a run, found by name, as good as their card."""

import json
from pathlib import Path

import pytest
import torch

import clustercaps as cc
from clustercaps.cli import main
from clustercaps.models import packaged
from clustercaps.training import package, resolve, train
from clustercaps.training.finished import Trained


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose only weights are those of a tiny run."""
    folder = tmp_path / "weights"
    folder.mkdir()
    for module in (packaged, package):
        monkeypatch.setattr(module, "WEIGHTS", folder)
    settings = resolve(
        "m1",
        "fashion-mnist-mini",
        "fast",
        epochs=1,
        limit=64,
        batch_size=32,
        test_limit=40,
        model_settings={"dim": 2, "votes": 3},
    )
    train(settings, tmp_path / "run")
    assert package.package(tmp_path / "run") == folder / "m1-fashion-mnist-mini"
    return folder


def test_packaged_weights_are_the_runs(weights: Path, tmp_path: Path) -> None:
    model = cc.create_model("m1", pretrained=True)
    trained = Trained.open(tmp_path / "run").model
    for ours, theirs in zip(model.parameters(), trained.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert not model.training
    assert packaged.list_pretrained() == ["m1:fashion-mnist-mini"]
    card = (weights / "m1-fashion-mnist-mini/model/README.md").read_text()
    assert "clustercaps train m1 --data fashion-mnist-mini --recipe fast --seed 0" in card
    assert "--epochs 1" in card
    assert "--set dim=2" in card


def test_the_head_can_be_replaced_and_nothing_else(weights: Path) -> None:
    model = cc.create_model("m1", pretrained="fashion-mnist-mini", num_classes=3)
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 3)
    assert cc.create_model("m1", pretrained=True, img_size=32, in_chans=1).num_classes == 10
    with pytest.raises(ValueError, match=r"for dim=2, not 6; remove dim"):
        cc.create_model("m1", pretrained=True, dim=6)


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("s1", True, "there are no packaged weights for s1; available: m1:fashion-mnist-mini"),
        ("m1", "cifar10", "unknown dataset for weights of m1 'cifar10'"),
    ],
)
def test_what_is_not_there_is_named(
    weights: Path, name: str, data: str | bool, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        cc.create_model(name, pretrained=data)


def test_models_lists_packaged_weights(weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--pretrained"]) == 0
    line = capsys.readouterr().out.splitlines()[2]
    assert line.startswith("m1:fashion-mnist-mini")
    assert "fast, 1 epochs, seed 0" in line


def test_evaluate_takes_packaged_weights(
    weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "m1:fashion-mnist-mini", "--device", "cpu"]) == 0
    assert "error" in capsys.readouterr().out
    assert list((tmp_path / "m1-fashion-mnist-mini").glob("confusion-*.png"))
    assert not list(weights.rglob("*.png"))


def test_validation_runs_are_refused(tmp_path: Path) -> None:
    settings = resolve(
        "m1", "fashion-mnist-mini", "fast", epochs=1, limit=32, test_limit=20, validate=True
    )
    train(settings, tmp_path / "run")
    with pytest.raises(ValueError, match="run with --validate"):
        package.package(tmp_path / "run")


@pytest.mark.parametrize("name", packaged.list_pretrained())
def test_packaged_weights_are_as_good_as_their_card(name: str) -> None:
    trained = Trained.open(name)
    model, data = name.split(":")
    card = json.loads((packaged.pretrained_folder(model, data) / "result.json").read_text())
    images = package.check_images(data)
    # One image on the boundary may fall to the other side on another processor.
    assert abs(package.count_errors(trained, images) - card["check_errors"]) <= 1
    assert len(images["labels"]) == card["check_images"] == package.CHECK_IMAGES
    assert sum(p.numel() for p in trained.model.parameters()) == card["parameters"]
    share = card["check_errors"] / card["check_images"]
    assert share == pytest.approx(card["test_error"] / 100, abs=0.08)


def test_the_weights_are_small() -> None:
    size = sum(path.stat().st_size for path in packaged.WEIGHTS.rglob("*") if path.is_file())
    assert size < 15e6
