"""Learning rates at given steps, beside what the authors' code computes there."""

import json
import math

import pytest
import torch

from clustercaps.models.registry import get_preset
from clustercaps.training.schedule import adam_beta1, learning_rate, set_rates
from clustercaps.training.settings import TrainSettings, from_json, resolve


def rate_at(settings: TrainSettings, step: int, images: int) -> float:
    """The learning rate of a step, counted from 0."""
    an_epoch = math.ceil(images / settings.batch_size)
    epoch, within = divmod(step, an_epoch)
    return learning_rate(settings, epoch, within / an_epoch, step)


def steps(settings: TrainSettings, images: int) -> int:
    return settings.epochs * math.ceil(images / settings.batch_size)


@pytest.mark.parametrize(
    ("name", "dataset", "images", "in_all"),
    [
        ("capsnet", "mnist", 60_000, 300_000),
        ("capsnet_cifar10", "cifar10", 50_000, 600_000),
        ("capsnet_smallnorb", "smallnorb", 24_300, 300_000),
        ("capsnet_svhn", "svhn", 73_257, 300_000),
    ],
)
def test_dynamic_routing_decays_every_2000_steps(
    name: str, dataset: str, images: int, in_all: int
) -> None:
    settings = resolve(name, dataset)
    assert steps(settings, images) == pytest.approx(in_all, rel=1e-3)
    for step in (0, 2000, 5000, 100_000):
        expected = 1e-3 * 0.96 ** (step / 2000)
        assert rate_at(settings, step, images) == pytest.approx(expected, rel=1e-3)
    assert rate_at(settings, in_all - 1000, images) == pytest.approx(
        max(1e-6, 1e-3 * 0.96 ** ((in_all - 1000) / 2000)), rel=0.01
    )


def test_ar_capsnet_decays_with_every_step() -> None:
    mnist, cifar10 = resolve("ar_capsnet", "mnist"), resolve("ar_capsnet_cifar10", "cifar10")
    assert rate_at(mnist, 0, 60_000) == 1e-3
    assert rate_at(mnist, 10_000, 60_000) == pytest.approx(1e-3 / 2)
    # Epochs 0 to 50 have the whole rate, from 51 on half of it.
    assert rate_at(cifar10, 51 * 500 - 1, 50_000) == pytest.approx(1e-3 / (1 + 1e-4 * 25_499))
    assert rate_at(cifar10, 51 * 500, 50_000) == pytest.approx(5e-4 / (1 + 1e-4 * 25_500))
    assert rate_at(cifar10, 200 * 500 - 1, 50_000) == pytest.approx(5e-5, rel=0.1)


@pytest.mark.parametrize(
    ("dataset", "epochs", "milestones"), [("cifar10", 350, (150, 250)), ("svhn", 200, (100, 150))]
)
def test_self_routing_has_milestones_for_each_dataset(
    dataset: str, epochs: int, milestones: tuple[int, int]
) -> None:
    settings = resolve("self_routing_2", dataset)
    assert settings.epochs == epochs
    for fallen, epoch in enumerate((0, *milestones)):
        assert learning_rate(settings, epoch, 0.0) == pytest.approx(0.1 * 0.1**fallen)
        if epoch:
            assert learning_rate(settings, epoch - 1, 0.9) == pytest.approx(
                0.1 * 0.1 ** (fallen - 1)
            )
    assert resolve("self_routing_2", dataset, "fast").epochs == 12


def test_heinsens_cycle() -> None:
    settings = resolve("heinsen_smallnorb", "smallnorb")
    an_epoch = math.ceil(24_300 / settings.batch_size)
    whole = 50 * an_epoch
    turn = whole * 0.1
    for step in (0, 1000, 3037, 6075, 30_000, whole - 1):
        rising = step / turn
        falling = 0.5 * (1 + math.cos(math.pi * (step - turn) / (whole - turn)))
        factor = rising if step <= turn else falling
        assert rate_at(settings, step, 24_300) == pytest.approx(1e-5 + (5e-4 - 1e-5) * factor)
        epoch, within = divmod(step, an_epoch)
        beta1 = adam_beta1(settings, epoch, within / an_epoch)
        assert beta1 == pytest.approx(0.81 + 0.09 * (1 - factor))
    # The cycle is a share of the run, however long it is.
    short = resolve("heinsen_smallnorb", "smallnorb", "fast")
    assert short.warmup == pytest.approx(1.2)
    assert learning_rate(short, 1, 0.2) == pytest.approx(5e-4)


def test_the_optimizer_gets_rate_and_beta1() -> None:
    settings = resolve("heinsen_smallnorb", "smallnorb")
    optimizer = torch.optim.RAdam([torch.nn.Parameter(torch.zeros(2))])
    rate = set_rates(optimizer, settings, 5, 0.0, 6075)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"]) == (rate, (pytest.approx(0.81), 0.999))
    assert rate == pytest.approx(5e-4)
    plain = resolve("vb_small", "smallnorb")
    group["betas"] = (0.9, 0.999)
    set_rates(optimizer, plain, 5, 0.0, 6075)
    assert group["betas"] == (0.9, 0.999)


def test_dcnet_has_the_authors_epochs() -> None:
    for name, batch in (("dcnet", 100), ("dcnet3", 64)):
        recipe = get_preset(name).get_recipe("paper")
        assert (recipe["epochs"], recipe["batch_size"], recipe["lr_decay"]) == (500, batch, 0.9)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"warmup_fraction": 1.0}, r"warmup_fraction must be in \[0, 1\)"),
        ({"warmup_fraction": 0.1}, "warmup_epochs and warmup_fraction exclude each other"),
        ({"beta1_low": 0.8}, "beta1_low is not supported by sgd"),
        ({"step_decay": -1.0}, "step_decay must not be negative"),
    ],
)
def test_bad_schedules_are_refused(changes: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        resolve("m1", "mnist", "fast", **changes)
    with pytest.raises(ValueError, match="beta1_low needs lr above lr_floor"):
        resolve("heinsen_smallnorb", "smallnorb", lr=1e-5)


def test_runs_of_older_versions_keep_their_network() -> None:
    older = json.loads(resolve("capsnet_cifar10", "cifar10").to_json())
    for name in ("step_decay", "warmup_fraction", "beta1_low"):
        del older[name]
    assert from_json(json.dumps(older), "x").model_settings == {"same_padding": True}
    older["model"] = "capsnet"
    assert from_json(json.dumps(older), "x").model_settings == {}
    now = resolve("capsnet_cifar10", "cifar10")
    assert from_json(now.to_json(), "x") == now
