import dataclasses
import json
import subprocess
import sys

import pytest

from clustercaps.models.peers import PEERS
from clustercaps.training.schedule import learning_rate
from clustercaps.training.settings import (
    RECIPE_NAMES,
    TrainSettings,
    differs_from_published,
    from_json,
    resolve,
)


def test_the_papers_recipe() -> None:
    paper = resolve("m1", "cifar10", "paper")
    assert (paper.epochs, paper.batch_size, paper.lr, paper.weight_decay) == (300, 64, 0.1, 5e-4)
    assert (paper.momentum, paper.average, paper.schedule) == (0, 0, "step")
    rates = [learning_rate(paper, epoch, 0.5) for epoch in (0, 99, 100, 199, 200, 299)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_every_network_of_another_paper_has_a_recipe() -> None:
    assert all(preset.recipe is not None for preset in PEERS.values())
    for name in PEERS:
        assert resolve(name, "mnist").recipe == "paper"


def test_cosine_with_warmup() -> None:
    settings = resolve("m1", "mnist", "fast", epochs=10, lr=1.0, warmup_epochs=2.0)
    assert learning_rate(settings, 0, 0.0) == 0
    assert learning_rate(settings, 1, 0.0) == pytest.approx(0.5)
    assert learning_rate(settings, 2, 0.0) == pytest.approx(1.0)
    assert learning_rate(settings, 6, 0.0) == pytest.approx(0.5)
    assert learning_rate(settings, 9, 0.999) < 1e-3


@pytest.mark.parametrize("recipe", RECIPE_NAMES)
def test_json_round_trip(recipe: str) -> None:
    settings = resolve("s2", "svhn", recipe, model_settings={"votes": 3, "routing": "uniform"})
    assert from_json(settings.to_json(), "x") == settings


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"epoch": 3}, "unknown setting 'epoch'; did you mean 'epochs'"),
        ({"epochs": 0}, "epochs must be an integer of at least 1, got 0"),
        ({"lr": -1.0}, "lr must not be negative"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"schedule": "spiral"}, "unknown schedule 'spiral'"),
        ({"momentum": 0.0}, "nesterov needs momentum"),
        ({"warmup_epochs": 20.0, "epochs": 10}, r"warmup_epochs \(20.0\) must be less than epochs"),
        ({"accumulate": 65}, r"accumulate \(65\) cannot exceed batch_size \(64\)"),
        ({"img_size": -1}, "img_size must be an integer of at least 0, got -1"),
        ({"model_settings": {"img_size": 28}}, "img_size is determined by the dataset"),
        ({"model_settings": {"num_classes": 3}}, "num_classes is determined by the dataset"),
        ({"precision": "fp8"}, "unknown precision"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        resolve("m1", "fashion-mnist-mini", "fast", **changes)


def test_a_network_sees_images_of_the_size_it_was_made_for() -> None:
    assert resolve("capsnet", "mnist").side == 28
    assert resolve("capsnet_cifar10", "cifar10").side == 24
    assert resolve("heinsen_smallnorb", "rendered-norb").side == 96
    assert resolve("imagenet_m4", "imagenet").side == 224
    assert resolve("capsnet", "mnist", img_size=40).side == 40
    # One network may have been published at several sizes, and a part is prepared as the whole.
    assert resolve("nair", "cifar10").side == 32
    assert resolve("nair", "fashion-mnist-mini").side == 28


def test_settings_of_older_versions_mean_32() -> None:
    older = json.loads(resolve("capsnet", "mnist").to_json())
    del older["img_size"]
    assert from_json(json.dumps(older), "x").side == 32
    # The same run, whether the size is left at its older default or named.
    named = resolve("capsnet", "mnist", img_size=32)
    assert named == from_json(json.dumps(older), "x")
    assert named.img_size == 0
    streamed = {**older, "model": "m1", "data": "imagenet", "img_size": 0}
    assert from_json(json.dumps(streamed), "x").side == 224


@pytest.mark.parametrize(
    ("model", "data", "changes", "expected"),
    [
        ("capsnet", "mnist", {}, ""),
        ("m1", "cifar10", {}, ""),
        ("nair", "fashion-mnist", {}, ""),
        (
            *("capsnet", "mnist", {"img_size": 32}),
            "capsnet was published on mnist at 28x28; this run has mnist at 32x32",
        ),
        (
            *("nair", "fashion-mnist-mini", {}),
            "nair was published on fashion-mnist at 28x28 and svhn, cifar10 at 32x32; this run has "
            "fashion-mnist-mini at 28x28",
        ),
        (
            *("heinsen_smallnorb", "folder:x", {}),
            "heinsen_smallnorb was published on smallnorb at 96x96; this run has folder:x at 96x96",
        ),
    ],
)
def test_what_was_not_published_is_said(
    model: str, data: str, changes: dict[str, int], expected: str
) -> None:
    assert differs_from_published(resolve(model, data, **changes)) == expected


def test_unknown_names_are_refused() -> None:
    with pytest.raises(KeyError, match="unknown model"):
        resolve("m99", "mnist")
    with pytest.raises(KeyError, match="unknown dataset"):
        resolve("m1", "minst")
    with pytest.raises(ValueError, match="unknown recipe"):
        resolve("m1", "mnist", "slow")


def test_settings_file_of_another_kind() -> None:
    with pytest.raises(ValueError, match=r"here\.json does not contain valid run settings"):
        from_json(json.dumps({"model": "m1"}), "here.json")


def test_wrong_types_are_refused() -> None:
    """In a process without the tests' own type checks, which would be first to complain."""
    code = """
from clustercaps.models.peers import PEERS
from clustercaps.training.settings import resolve
for changes in ({"epochs": 2.5}, {"lr": "0.1"}, {"validate": 1}, {"epochs": True}):
    try:
        resolve("m1", "mnist", **changes)
    except ValueError as error:
        print(error)
assert resolve("m1", "mnist", lr=1).lr == 1.0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "epochs must be int, got 2.5",
        "lr must be float, got '0.1'",
        "validate must be bool, got 1",
        "epochs must be int, got True",
    ]


def test_every_setting_is_explained() -> None:
    for each in dataclasses.fields(TrainSettings):
        assert each.name == "model_settings" or len(each.metadata["help"]) > 10
