"""What the budgets promise."""

import pytest

from clustercaps.data import SETS
from clustercaps.experiments import BUDGETS, EXPERIMENTS, get_experiment
from clustercaps.models.peers import PEERS

TRAININGS = {"classification": 36, "kd-grid": 8, "ablation": 8}


@pytest.mark.parametrize("name", TRAININGS)
def test_full_is_the_papers_protocol(name: str) -> None:
    experiment = get_experiment(name)
    cells = experiment.cells("full")
    assert len(cells) == TRAININGS[name]
    assert experiment.seeds["full"] == (0, 1, 2)
    for cell in cells:
        protocol = {
            **{"epochs": 300, "batch_size": 64, "lr": 0.1, "optimizer": "sgd", "momentum": 0.0},
            **{"schedule": "step", "lr_decay": 0.1, "drops": "1/3,2/3", "limit": 0},
            **{"average": 0.0, "augment": True, "validate": False, "label_smoothing": 0.0},
        }
        assert {key: cell.settings[key] for key in protocol} == protocol
        assert cell.settings["data"] in ("smallnorb", "fashion-mnist", "svhn", "cifar10")


def test_both_routings_of_the_ablation_have_the_same_budget() -> None:
    for budget in BUDGETS:
        settings = [dict(cell.settings) for cell in get_experiment("ablation").cells(budget)]
        for one, other in zip(settings[::2], settings[1::2], strict=True):
            ours, theirs = one.pop("model_settings"), other.pop("model_settings")
            assert one == other
            # Cluster routing is the default.
            assert (ours.pop("routing", "cluster"), theirs.pop("routing")) == ("cluster", "uniform")
            assert ours == theirs


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_ids_are_unique_and_smoke_needs_no_download(name: str) -> None:
    experiment = get_experiment(name)
    for budget in BUDGETS:
        cells = experiment.cells(budget)
        assert len({cell.id for cell in cells}) == len(cells) > 0
        assert experiment.seeds[budget]
    for cell in experiment.cells("smoke"):
        assert cell.data in ("", "fashion-mnist-mini", "imagenet")


def test_quick_trains_on_parts_of_real_sets() -> None:
    for name in TRAININGS:
        for cell in get_experiment(name).cells("quick"):
            images = cell.settings["limit"] or SETS[cell.data].train
            assert images * cell.settings["epochs"] <= 60_000


def test_cells_that_share_a_run_have_the_same_settings() -> None:
    shared = 0
    for name in EXPERIMENTS:
        for budget in BUDGETS:
            for cell in get_experiment(name).cells(budget):
                if cell.same_as is None:
                    continue
                other, id = cell.same_as
                (twin,) = [c for c in get_experiment(other).cells(budget) if c.id == id]
                # The measurement of the trained network may differ.
                other_settings = {**twin.settings}
                if "measurement" in cell.settings:
                    other_settings["measurement"] = cell.settings["measurement"]
                assert cell.changes(other_settings) == []
                shared += 1
    assert shared >= 4


FIGURES = {"routing-weights": 2, "affine": 3, "disentangle": 3}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_of_networks_trained_on_mnist(name: str) -> None:
    experiment = get_experiment(name)
    for budget in ("quick", "full"):
        trained = [cell for cell in experiment.cells(budget) if "epochs" in cell.settings]
        assert len(trained) == FIGURES[name]
        assert {cell.data for cell in experiment.cells(budget)} == {"mnist"}
        for cell in trained:
            peer = cell.settings["model"] in PEERS
            if budget == "quick":
                assert cell.settings["limit"] * cell.settings["epochs"] <= 60_000
            elif peer:
                recipe = PEERS[cell.settings["model"]].recipe
                assert {key: cell.settings[key] for key in recipe} == recipe
            else:
                assert (cell.settings["epochs"], cell.settings["lr"]) == (300, 0.1)
                assert (cell.settings["optimizer"], cell.settings["limit"]) == ("sgd", 0)


def test_another_measurement_of_the_same_training_is_another_result() -> None:
    quick = get_experiment("affine").cells("quick")[0]
    fewer = {**quick.settings, "measurement": {"images": 10}}
    assert quick.changes(fewer) == ["measurement was {'images': 10}, now {'images': 1000}"]


def test_a_setting_that_an_old_result_does_not_know_is_no_change() -> None:
    cell = get_experiment("ablation").cells("quick")[0]
    older = {name: value for name, value in cell.settings.items() if name != "accumulate"}
    assert cell.changes(older) == []


@pytest.mark.parametrize("name", ["classification", "kd-grid", "ablation"])
def test_night_trains_on_all_images_of_real_sets_with_the_strong_recipe(name: str) -> None:
    cells = get_experiment(name).cells("night")
    assert {cell.data for cell in cells} <= {"fashion-mnist", "cifar10"}
    for cell in cells:
        assert (cell.settings["limit"], cell.settings["validate"]) == (0, False)
        assert cell.settings["test_every"] > cell.settings["epochs"]
        strong = cell.settings["recipe"] == "strong"
        assert strong != cell.id.startswith("m1-paper-recipe")


@pytest.mark.parametrize("name", [n for n in EXPERIMENTS if n not in ("parameters", "imagenet")])
def test_night_is_not_a_smaller_budget(name: str) -> None:
    experiment = get_experiment(name)
    assert {c.hash for c in experiment.cells("night")}.isdisjoint(
        {c.hash for budget in ("smoke", "quick") for c in experiment.cells(budget) if c.seeded}
    )


def test_a_cell_can_have_seeds_of_its_own() -> None:
    experiment = get_experiment("classification")
    wanted = experiment.wanted("night")
    assert {seed for id, seed in wanted if id == "m1-long/fashion-mnist"} == {0, 1, 2}
    assert {seed for id, seed in wanted if id == "s1/fashion-mnist"} == {0}
    paper = next(c for c in experiment.cells("night") if c.id == "m1-paper-recipe/fashion-mnist")
    ours = next(c for c in experiment.cells("night") if c.id == "m1/fashion-mnist")
    assert paper.settings["epochs"] == ours.settings["epochs"]
