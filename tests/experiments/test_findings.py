import pytest

from clustercaps.experiments import affine, get_experiment, routing_weights
from clustercaps.experiments.harness.findings import Finding, below, sampling_sd
from clustercaps.experiments.harness.spread import Spread


@pytest.mark.parametrize(
    ("ours", "others", "expected"),
    [
        # Two seeds each, deviations of 0.71: means must be more than 1.41 apart.
        ((1.0, 2.0), (3.0, 4.0), True),
        ((3.0, 4.0), (1.0, 2.0), False),
        ((1.0, 2.0), (2.0, 3.0), None),
        ((1.0,), (1.1,), True),
        ((1.0,), (1.0,), None),
    ],
)
def test_below(ours: tuple[float, ...], others: tuple[float, ...], expected: bool | None) -> None:
    assert below(Spread(ours), Spread(others)) is expected


def test_a_difference_within_chance_is_none() -> None:
    # Half of 100 images: a deviation of 5 in 100.
    chance = sampling_sd(50.0, 100)
    assert chance == 5
    assert below(Spread((50.0,)), Spread((54.0,)), chance=chance) is None
    assert below(Spread((50.0,)), Spread((56.0,)), chance=chance) is True


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([True, True], "holds"),
        ([True, None], "partly holds"),
        ([True, False], "partly holds"),
        ([False, False], "does not hold"),
        ([None, False], "inconclusive"),
    ],
)
def test_verdict(answers: list[bool | None], verdict: str) -> None:
    assert Finding("", answers, "").verdict == verdict


def verdict_of(found: Finding | None) -> str | None:
    return None if found is None else found.verdict


def errors(cells: dict[str, float]) -> list[dict[str, object]]:
    return [
        {"cell": id, "seed": 0, "data": "cifar10", "train_images": 100, "test_error": error}
        for id, error in cells.items()
    ]


@pytest.mark.parametrize(
    ("name", "agreeing", "disagreeing"),
    [
        (
            "ablation",
            {"m1/cluster": 10, "m1/uniform": 20},
            {"m1/cluster": 20, "m1/uniform": 10},
        ),
        (
            "kd-grid",
            {"k5d6": 4, "k5d8": 3, "k8d6": 2, "k8d8": 1},
            {"k5d6": 1, "k5d8": 2, "k8d6": 3, "k8d8": 4},
        ),
        (
            "classification",
            {"m1/cifar10": 2, "m2/cifar10": 1, "s1/cifar10": 9, "s3/cifar10": 8},
            {"m1/cifar10": 1, "m2/cifar10": 2, "s1/cifar10": 8, "s3/cifar10": 9},
        ),
    ],
)
def test_errors_decide(
    name: str, agreeing: dict[str, float], disagreeing: dict[str, float]
) -> None:
    judge = get_experiment(name).finding
    for cells, verdict in ((agreeing, "holds"), (disagreeing, "does not hold")):
        found = judge(errors(cells))
        assert verdict_of(found) == verdict
    assert judge(errors(dict(list(agreeing.items())[:1]))) is None


def test_viewpoints_compare_where_networks_are_matched() -> None:
    def run(model: str, novel: str, images: int = 10_000) -> dict[str, object]:
        curve = {"familiar_curve": "50 80", "novel_curve": novel, "familiar_best": 80.0}
        run = {"model": model, "data": "smallnorb", "views": "azimuth", "seed": 0, **curve}
        return {**run, "novel_images": images}

    judge = get_experiment("viewpoints").finding
    better = judge([run("m2", "40 70"), run("viewpoint_cnn", "45 60")])
    worse = judge([run("m2", "50 55"), run("viewpoint_cnn", "45 60")])
    assert verdict_of(better) == "holds"
    assert verdict_of(worse) == "does not hold"
    assert better is not None
    assert "matched at 80.00: M2 70.00, CNN 60.00 % of 10,000 images" in better.evidence
    # Of so few images, ten in a hundred more may be chance.
    few = judge([run("m2", "40 70", 50), run("viewpoint_cnn", "45 60", 50)])
    assert verdict_of(few) == "inconclusive"
    assert judge([run("m2", "40 70")]) is None


def test_affine_needs_both_units() -> None:
    rows = [
        {"cell": model, "seed": 0, "mse average": equal, f"mse average{affine.DOUBLED}": doubled}
        for model, equal, doubled in (("affine_capsules", 0.1, 0.2), ("affine_cnn", 0.3, 0.1))
    ]
    found = affine.finding(rows)
    assert verdict_of(found) == "partly holds"


def test_weights_must_tell_classes_apart_in_every_dimension() -> None:
    row = {"cell": next(iter(routing_weights.CELLS)), "seed": 0, "variance_ratio": 0.5}
    for passed, verdict in ((80, "holds"), (79, "does not hold")):
        found = routing_weights.finding([{**row, "above_shuffled": passed, "capsule_dims": 80}])
        assert verdict_of(found) == verdict


def test_dimensions_must_stand_out() -> None:
    judge = get_experiment("disentangle").finding
    row = {"cell": "class_capsules", "seed": 0}
    for fraction, verdict in ((0.6, "holds"), (0.2, "partly holds"), (0.08, "does not hold")):
        found = judge([{**row, "above_random_fraction": fraction}])
        assert verdict_of(found) == verdict
