"""Reading accuracies off curves where networks are matched."""

import json
import random
from pathlib import Path

import pytest
from helpers.measured import is_known, known_numbers, stated_numbers

from clustercaps.experiments import get_experiment
from clustercaps.experiments.harness.markdown import fragment
from clustercaps.experiments.harness.matching import at_level, comparisons, points
from clustercaps.experiments.harness.store import CONDITIONS, Store, read_rows

PAPER = Path(__file__).parents[2] / "clustercaps/experiments/paper.json"


def run(model: str, familiar: str, novel: str, seed: int = 0) -> dict[str, object]:
    best = max(float(part) for part in familiar.split())
    curves = {"familiar_curve": familiar, "novel_curve": novel, "familiar_best": best}
    return {"model": model, "seed": seed, **curves}


M2 = run("m2", "50 97 99 98", "40 80 85 84")
CNN = run("viewpoint_cnn", "60 96.3 94", "50 70 72")
EM = run("em_small", "30 60 55", "20 45 50")


def test_the_first_test_that_reaches_the_level_counts() -> None:
    assert at_level(M2, 96.3) == (97, 80)
    assert at_level(CNN, 96.3) == (96.3, 70)
    assert at_level(EM, 60.0) == (60, 45)
    # The file gives a single number back as a number.
    assert points({"novel_curve": 12.5}, "novel") == [12.5]


def test_matched_at_the_papers_accuracy_if_all_reach_it() -> None:
    assert comparisons([M2, CNN], 96.3) == [(96.3, [M2, CNN])]


def test_else_at_the_highest_that_all_reach_and_without_the_slowest() -> None:
    assert comparisons([M2, CNN, EM], 96.3) == [(60.0, [M2, CNN, EM]), (96.3, [M2, CNN])]
    # Of two networks there is nothing to compare without one of them.
    assert comparisons([M2, EM], 96.3) == [(60.0, [M2, EM])]
    assert comparisons([], 96.3) == []


def test_every_seed_must_reach_the_level() -> None:
    slow = run("m2", "50 90", "40 70", seed=1)
    assert comparisons([M2, slow, CNN], 96.3) == [(90.0, [M2, slow, CNN])]


@pytest.mark.parametrize("budget", ["quick", "full"])
def test_every_number_of_the_section_is_in_the_results(budget: str, tmp_path: Path) -> None:
    chance = random.Random(0)
    experiment = get_experiment("viewpoints")
    store = Store(tmp_path / f"viewpoints-{budget}.csv", experiment.cells(budget))
    for cell in experiment.cells(budget):
        for seed in experiment.seeds[budget]:
            top = 60 if "em" in cell.id else 99
            curves = [[round(top * chance.random(), 4) for _ in range(5)] for _ in range(2)]
            familiar, novel = (" ".join(map(str, curve)) for curve in curves)
            keys = ("model", "data", "recipe", "epochs", "views")
            row = {key: cell.settings[key] for key in keys}
            row |= run(row["model"], familiar, novel, seed)
            row |= {"cell": cell.id, "seed": seed, "train_seconds": 12.3, "weights": "current"}
            row |= {"train_images": 8100, "test_images": 300, "novel_images": 300}
            row |= {"parameters": 12345}
            row |= {"familiar_last": curves[0][-1], "novel_last": curves[1][-1]}
            row |= {"images_seen": 49152, "tested": "often", **dict.fromkeys(CONDITIONS, "some")}
            row |= {"settings_hash": cell.hash, "settings": json.dumps(cell.settings)}
            store.add(row)
    rows = read_rows(store.path)
    text = fragment("viewpoints", experiment, budget, rows)
    assert "rendered objects (not smallNORB)" in text
    assert ("| smallNORB |" in text) == (budget == "full")
    assert "the highest familiar accuracy that all reach" in text
    assert "tested often" in text
    known = known_numbers(tmp_path, PAPER)
    stated = list(stated_numbers(text, everywhere=True))
    assert [n for n, unit, scale in stated if not is_known(n, unit, scale, known)] == []
    (tmp_path / "empty").mkdir()
    without = known_numbers(tmp_path / "empty", PAPER)
    assert [n for n, unit, scale in stated if not is_known(n, unit, scale, without)]
    titles = [ax.get_title() for ax in experiment.figure(rows, budget).axes]
    assert len(titles) == (4 if budget == "full" else 2)
    assert "azimuth, rendered objects (not smallNORB)" in titles


def test_all_networks_of_a_comparison_see_the_same_images() -> None:
    for budget in ("quick", "full"):
        for cell in get_experiment("viewpoints").cells(budget):
            model, data, views = cell.id.split("/")
            settings = cell.settings
            assert (settings["model"], settings["data"], settings["views"]) == (model, data, views)
            assert settings["limit"] == 0
            assert settings["augment"] == (budget == "full")
            assert settings["test_limit"] == (300 if budget == "quick" else 0)
            assert settings["test_every"] == 1
