"""The experiment `peers`: what is equal for all systems, and what its stored results say."""

from pathlib import Path

import pytest

from clustercaps.experiments import get_experiment
from clustercaps.experiments.harness.cells import Workspace
from clustercaps.experiments.harness.following import train_and_track
from clustercaps.experiments.harness.store import read_rows
from clustercaps.experiments.peers import (
    BATCH,
    LONGER,
    MINUTES,
    SECONDS,
    TESTS,
    TRAIN_IMAGES,
    VARIANTS,
    curve,
    figure,
    images_seen,
    table,
)
from clustercaps.models.peers import PEERS
from clustercaps.training.settings import resolve

RESULTS = Path(__file__).parents[2] / "results"
EXPERIMENT = get_experiment("peers")


@pytest.mark.parametrize("budget", ["quick", "night"])
def test_batch_and_images_are_the_same_for_all(budget: str) -> None:
    for cell in EXPERIMENT.cells(budget):
        # An image size of 0 is 32x32.
        settings = {name: cell.settings[name] for name in ("batch_size", "img_size", "limit")}
        assert settings == {"batch_size": BATCH, "img_size": 0, "limit": (budget == "quick") * 1000}
        if budget == "quick":
            assert cell.settings["epochs"] == LONGER.get(cell.id, 2)
        if cell.id in PEERS:
            recipe = PEERS[cell.id].recipe
            same = ("optimizer", "lr") if budget == "night" else ("optimizer", "lr", "schedule")
            assert {n: cell.settings[n] for n in same} == {n: recipe[n] for n in same}


def test_nights_take_equally_long() -> None:
    for cell in EXPERIMENT.cells("night"):
        epochs, images = cell.settings["epochs"], cell.settings["epoch_images"]
        assert 0 < images <= TRAIN_IMAGES
        minutes = epochs * images / 1000 * SECONDS[cell.settings["model"]] / 60
        assert minutes == pytest.approx(MINUTES, rel=0.01)
        assert cell.settings["schedule"] == "cosine"
        assert cell.settings["augment"]
        assert TESTS * cell.settings["test_every"] == epochs
        assert cell.settings["warmup_epochs"] < epochs / 2


def test_variants_differ_from_their_system_by_one_setting() -> None:
    cells = {cell.id: cell.settings for cell in EXPERIMENT.cells("night")}
    for id, (name, changes) in VARIANTS.items():
        assert cells[id] == {**cells[name], "model_settings": changes}


def test_full_is_every_papers_recipe() -> None:
    for cell in EXPERIMENT.cells("full"):
        assert (cell.settings["recipe"], cell.settings["limit"]) == ("paper", 0)
        if cell.id in PEERS:
            recipe = PEERS[cell.id].recipe
            assert {name: cell.settings[name] for name in recipe} == recipe


def test_speeds_are_those_of_the_stored_results() -> None:
    rows = read_rows(RESULTS / "peers-quick.csv")
    measured = {
        row["cell"]: 1000 * row["train_seconds"] / images_seen(row)
        for row in rows
        if row["machine"] == "AMD EPYC, 1 threads"
    }
    assert measured == pytest.approx(SECONDS, rel=1e-3)


def test_the_table_has_a_line_for_every_system() -> None:
    text = table(read_rows(RESULTS / "peers-quick.csv"), "quick")
    assert [line.split(" | ")[0][2:] for line in text.splitlines()[2:]] == list(SECONDS)
    assert "| star | 87,302 | `types [16, 16, 16]` | 2,000 | 224 s | 53.45 | 60.10 |" in text
    assert "| heinsen_smallnorb | 281,990 | - | 12,000 | 29 s | 81.15 | 83.50 |" in text


def test_a_night_is_drawn_as_error_over_time(tmp_path: Path) -> None:
    tiny = {"epochs": 4, "epoch_images": 16, "limit": 32, "test_limit": 20, "test_every": 2}
    form = {"dim": 2, "votes": 2}
    settings = resolve("m1", "fashion-mnist-mini", "fast", model_settings=form, **tiny)
    row = {"cell": "m1", "seed": 0, **train_and_track(settings, 0, Workspace(tmp_path))}
    minutes, errors = curve(row)
    assert len(minutes) == len(errors) == 2
    assert 0 < minutes[0] < minutes[1] == pytest.approx(row["train_seconds"] / 60, abs=0.01)
    assert errors[-1] == pytest.approx(row["test_error"])
    other = {**row, "cell": "s1", "error_curve": "90.0 80.0"}
    (panel,) = figure([row, other], "night").axes
    assert [list(line.get_ydata()) for line in panel.lines] == [errors, [90.0, 80.0]]
    names = [text.get_text() for text in panel.texts]
    assert sorted(names) == [f"m1  {errors[-1]:.2f}", "s1  80.00"]
