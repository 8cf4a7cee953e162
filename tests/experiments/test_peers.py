"""The experiment `peers`: what is equal for all systems, and what its stored results say."""

from pathlib import Path

import pytest

from clustercaps.experiments import get_experiment
from clustercaps.experiments.harness.store import read_rows
from clustercaps.experiments.peers import (
    BATCH,
    LONGER,
    MINUTES,
    SECONDS,
    TESTS,
    TRAIN_IMAGES,
    images_seen,
    table,
)
from clustercaps.models.peers import PEERS

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
        minutes = epochs * images / 1000 * SECONDS[cell.id] / 60
        assert minutes == pytest.approx(MINUTES, rel=0.01)
        assert cell.settings["schedule"] == "cosine"
        assert cell.settings["augment"]
        assert TESTS * cell.settings["test_every"] == epochs
        assert cell.settings["warmup_epochs"] < epochs / 2


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
