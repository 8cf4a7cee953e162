import pytest
from torch import nn

from clustercaps.experiments.harness.counts import (
    classifier_count,
    classifier_table,
    fits,
    other_networks,
)
from clustercaps.models import create_model
from clustercaps.models.registry import count_parameters

# Derived by hand from the architecture: (3, 10), (1, 10), (2, 5), (2, 10) colours and classes.
COUNTS = {
    "m1": (154_378, 145_738, 142_373, 150_058),
    "m2": (251_914, 240_394, 235_909, 246_154),
    "m3": (1_339_402, 1_302_538, 1_300_485, 1_320_970),
    "m4": (2_893_834, 2_838_538, 2_835_461, 2_866_186),
    "s1": (155_594, 151_850, 149_557, 153_722),
    "s2": (219_146, 214_538, 211_717, 216_842),
    "s3": (686_090, 667_658, 671_749, 676_874),
    "s4": (2_551_818, 2_514_954, 2_523_141, 2_533_386),
    "baseline_cnn": (3_383_306, 3_378_698, 3_299_077, 3_381_002),
}


@pytest.mark.parametrize("name", COUNTS)
def test_classifiers(name: str) -> None:
    tasks = [(3, 10), (1, 10), (2, 5), (2, 10)]
    counts = [count_parameters(name, in_chans=c, num_classes=n) for c, n in tasks]
    assert tuple(counts) == COUNTS[name]


@pytest.mark.parametrize(
    ("votes", "dim", "printed"),
    [
        (5, 6, "154K"),
        (5, 8, "252K"),
        (5, 16, "872K"),
        (5, 24, "1.86M"),
        (8, 6, "226K"),
        (8, 8, "375K"),
        (8, 16, "1.34M"),
        (8, 24, "2.89M"),
    ],
)
def test_k_by_d_grid(votes: int, dim: int, printed: str) -> None:
    assert fits(count_parameters("m1", votes=votes, dim=dim), printed)


def test_others() -> None:
    counts = {name: count.parameters for name, count in other_networks().items()}
    assert counts == {
        "viewpoint_cnn": 4_253_349,
        "imagenet_m4": 28_893_608,
        "affine_capsules": 79_307,
        "affine_cnn": 134_139,
        "class_capsules": 1_650_377,
    }


@pytest.mark.parametrize(
    ("name", "trunk", "expected"),
    [
        ("affine_capsules", "capsules.layers", [5_120, 18_944, 18_944]),
        ("affine_cnn", "convs", [960, 83_040, 13_840]),
    ],
)
def test_affine_networks_layer_by_layer(name: str, trunk: str, expected: list[int]) -> None:
    model = create_model(name)

    def count(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    assert [count(layer) for layer in model.get_submodule(trunk).children()] == expected
    assert count(model.head) == 31_370
    assert [count(layer) for layer in model.decoder.layers if count(layer)] == [4_640, 289]


def test_the_papers_inconsistent_cells_are_marked() -> None:
    marked = {
        (name, data): cell.mark
        for name, cells in classifier_table().items()
        for data, cell in cells.items()
        if cell.mark
    }
    ten_way = {(name, "smallnorb"): "*" for name in ("m1", "m2", "m3", "m4", "s2", "s4")}
    assert marked == {**ten_way, ("s3", "fashion-mnist"): "+"}
    assert str(classifier_count("s3", "fashion-mnist")) == "667,658 (686K+)"


def test_printed_numbers() -> None:
    assert fits(154_378, "154K")
    assert fits(4_253_349, "4.2M")
    assert fits(79_307, "79,307")
    assert not fits(79_308, "79,307")
    assert not fits(667_658, "686K")
    assert not fits(2_523_141, "2.53M")
