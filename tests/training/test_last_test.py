"""The last test of a run is kept, and figures are drawn from files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clustercaps import data
from clustercaps.cli import main
from clustercaps.experiments.harness.following import few
from clustercaps.training import (
    RunFolder,
    Score,
    Trained,
    TrainSettings,
    draw_run,
    figures,
    finished,
    resolve,
    train,
)
from clustercaps.training.figures import shows_routing
from clustercaps.training.finished import last_test

SMALL = {"limit": 40, "test_limit": 40, "batch_size": 20, "epochs": 1}
TINY = {**SMALL, "model_settings": {"dim": 2, "votes": 4}}


def tiny(**changes: object) -> TrainSettings:
    return resolve("m1", "fashion-mnist-mini", "fast", **{**TINY, **changes})


def no_test(*args: object, **kwargs: object) -> Score:
    raise AssertionError("the network was tested again")


def test_the_last_test_is_kept(tmp_path: Path) -> None:
    result = train(tiny(), tmp_path)
    stored = json.loads((tmp_path / "confusion.json").read_text())
    assert stored["class_names"] == result["class_names"]
    assert [sum(row) for row in stored["test"]["confusion"]] == [4] * 10
    assert "novel" not in stored
    score = last_test(tmp_path)["test"]
    assert score.errors == result["test_errors"]
    assert (score.error, score.top5_error) == (result["test_error"], result["top5_error"])
    assert score.loss == result["test_loss"]


def test_figures_are_drawn_without_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tiny(), tmp_path)
    kept = (tmp_path / "confusion.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(finished, "score", no_test)
        drawn = draw_run(tmp_path)
    assert [path.name for path in drawn] == ["learning-curve.png", "confusion.png", "routing.png"]
    assert capsys.readouterr().err == ""
    # As version 0.1.0 left it: tested once, which is said, and never again.
    (tmp_path / "confusion.json").unlink()
    draw_run(str(tmp_path))
    assert "no confusion.json: testing its network once" in capsys.readouterr().err
    assert (tmp_path / "confusion.json").read_bytes() == kept
    monkeypatch.setattr(finished, "score", no_test)
    draw_run(tmp_path)
    assert capsys.readouterr().err == ""


def test_a_network_without_routing_weights_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = resolve("baseline_cnn", "fashion-mnist-mini", "fast", **SMALL)
    train(settings, tmp_path)
    monkeypatch.setattr(figures, "Trained", None)
    assert [path.name for path in draw_run(tmp_path)] == ["learning-curve.png", "confusion.png"]


def test_novel_viewpoints_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", few)
    form = {"epochs": 1, "epoch_images": 8, "batch_size": 4, "views": "azimuth"}
    settings = resolve("m2", "rendered-norb", "fast", **form, model_settings={"dim": 2, "votes": 4})
    result = train(settings, tmp_path)
    kept = (tmp_path / "confusion.json").read_bytes()
    scores = last_test(tmp_path)
    assert (scores["test"].error, scores["novel"].error) == (
        result["test_error"],
        result["novel_error"],
    )
    assert scores["novel"].total == result["novel_images"]
    (tmp_path / "confusion.json").unlink()
    names = [path.name for path in draw_run(tmp_path)]
    assert names == ["learning-curve.png", "confusion.png", "confusion-novel.png", "routing.png"]
    assert (tmp_path / "confusion.json").read_bytes() == kept


@pytest.mark.parametrize("killed_at", ["keep_last_test", "finish"])
def test_a_run_killed_before_its_result_leaves_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train(tiny(), straight)

    def power_cut(*args: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, killed_at, power_cut)
        with pytest.raises(RuntimeError, match="power cut"):
            train(tiny(), killed)
    assert (killed / "confusion.json").exists() == (killed_at == "finish")
    assert RunFolder(killed).result is None
    train(tiny(), killed, resume=True)
    for name in ("confusion.json", "settings.json", "model/model.safetensors", "model/config.json"):
        assert (killed / name).read_bytes() == (straight / name).read_bytes(), name
    ours, theirs = (
        {k: v for k, v in (RunFolder(path).result or {}).items() if k != "train_seconds"}
        for path in (killed, straight)
    )
    assert ours == theirs
    assert ours


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "confusion.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="json is corrupt; delete it, and the network is tested"):
        last_test(tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not valid JSON"):
        last_test(tmp_path)


def test_unfinished_runs_have_no_figures(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contains no run"):
        draw_run(tmp_path)
    (tmp_path / "settings.json").write_text(tiny().to_json())
    with pytest.raises(ValueError, match="is not finished; run clustercaps train --resume --out"):
        draw_run(tmp_path)


@pytest.mark.parametrize(
    ("model", "source", "routing", "shown"),
    [
        ("m1", "fashion-mnist-mini", "cluster", True),
        ("m1", "fashion-mnist-mini", "uniform", True),
        ("m1", "fashion-mnist-mini", "em", False),
        ("m1", "folder:here", "cluster", True),
        ("m1", "own:mine", "cluster", False),
        ("capsnet", "fashion-mnist-mini", None, False),
    ],
)
def test_which_runs_show_routing_weights(
    model: str, source: str, routing: str | None, shown: bool
) -> None:
    network = {"routing": routing} if routing else {}
    assert shows_routing(resolve(model, source, "fast", model_settings=network)) == shown


def test_runs_with_another_routing_end_well(tmp_path: Path) -> None:
    """Their layers have no routing weights to show, which is no error."""
    flags = "--limit 10 --test-limit 10 --epochs 1 --set dim=2 --set votes=2 --set routing=dynamic"
    assert main(["train", "m1", *flags.split(), "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "confusion.png").exists()
    assert not (tmp_path / "run" / "routing.png").exists()


def test_a_score_survives_json() -> None:
    score = Score(torch.tensor([[3, 1], [0, 2]]), 1.25, 1)
    again = Score.from_plain(json.loads(json.dumps(score.to_plain())))
    assert again.confusion.equal(score.confusion)
    assert again.confusion.dtype == torch.int64
    assert (again.loss_sum, again.top5_misses) == (1.25, 1)
    assert (again.errors, again.total) == (1, 6)


def test_networks_are_tested_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny(), tmp_path)
    trained = Trained.open(tmp_path)
    trained.model.to("meta")
    seen: list[torch.device] = []

    def score(*args: object) -> Score:
        assert isinstance(args[-1], torch.device)
        seen.append(args[-1])
        return Score(torch.eye(10, dtype=torch.int64), 0.0, 0)

    monkeypatch.setattr(finished, "score", score)
    trained.score(data.load("fashion-mnist-mini", "test"))
    assert seen == [torch.device("meta")]


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator")
def test_an_accelerator_gives_the_score_of_the_cpu(tmp_path: Path) -> None:
    train(tiny(), tmp_path)
    images = data.load("fashion-mnist-mini", "test").subset(slice(0, 100))
    here, there = (Trained.open(tmp_path, device).score(images) for device in ("cpu", "auto"))
    assert there.confusion.device.type == "cpu"
    assert there.loss == pytest.approx(here.loss, rel=1e-3)


def test_a_run_of_one_epoch_shows_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []

    def keep(figure: object, path: Path) -> Path:
        drawn.append(figure)
        return path

    monkeypatch.setattr(figures, "save", keep)
    line = {"epoch": 1, "train_loss": 0.4, "train_error": 30.0, "test_error": 25.0}
    figures.learning_curves({"run": [line]}, tmp_path / "curve.png")
    loss, error = drawn[0].axes
    assert [list(curve.get_ydata()) for curve in loss.lines] == [[0.4]]
    assert [list(curve.get_ydata()) for curve in error.lines[:2]] == [[30.0], [25.0]]
    assert all(curve.get_marker() == "o" for ax in (loss, error) for curve in ax.lines)
