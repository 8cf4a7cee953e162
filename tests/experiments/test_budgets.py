"""What the budgets promise."""

import pytest

from clustercaps.data import SETS
from clustercaps.experiments import BUDGETS, EXPERIMENTS, get_experiment

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
            assert (ours.pop("routing"), theirs.pop("routing")) == ("cluster", "uniform")
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
