"""What a training of every registered network builds: its published size, to the parameter."""

import re

import pytest
import torch

import clustercaps as cc
from clustercaps import data
from clustercaps.data import SETS, Images
from clustercaps.models import ImageClassifier
from clustercaps.models.peers import PEERS
from clustercaps.models.registry import PRESETS, get_preset, most_children
from clustercaps.training.initial import network_settings
from clustercaps.training.settings import resolve


def trained_network(name: str, dataset: str) -> ImageClassifier:
    """What `clustercaps train NAME --data DATASET` builds, without its weights."""
    known = data.info(dataset)
    images = Images(
        torch.zeros(1, *known.shape, dtype=torch.uint8),
        torch.zeros(1, dtype=torch.int64),
        {"num_classes": known.num_classes, "class_names": known.class_names},
    )
    with torch.device("meta"):
        return cc.create_model(name, **network_settings(resolve(name, dataset), images))


def count(model: ImageClassifier) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "dataset", "side", "parameters"),
    [
        ("m1", "smallnorb", 32, 142_373),
        ("m1", "fashion-mnist", 32, 145_738),
        ("s4", "cifar10", 32, 2_551_818),
        ("affine_capsules", "mnist", 28, 79_307),
        ("affine_cnn", "mnist", 28, 134_139),
        ("class_capsules", "mnist", 28, 1_650_377),
        ("capsnet", "mnist", 28, 8_215_568),
        ("capsnet_cifar10", "cifar10", 24, 22_476_448),
        ("capsnet_smallnorb", "smallnorb", 32, 9_327_104),
        ("heinsen_smallnorb", "smallnorb", 96, 271_688),
        ("frms_capsnet", "cifar10", 64, 1_240_480),
        ("frem_capsnet", "cifar10", 64, 1_240_482),
        ("dcnet", "mnist", 28, 11_886_370),
        ("dcnet", "cifar10", 32, 16_079_926),
        ("ms_capsnet_28", "fashion-mnist", 28, 12_169_552),
        ("ar_capsnet", "mnist", 28, 5_312_528),
        ("efficient_capsnet", "mnist", 28, 1_573_168),
        ("nair", "fashion-mnist", 28, 8_215_568),
        ("nair", "svhn", 32, 11_749_120),
    ],
)
def test_training_builds_the_published_network(
    name: str, dataset: str, side: int, parameters: int
) -> None:
    model = trained_network(name, dataset)
    assert (model.img_size, count(model)) == ((side, side), parameters)


def test_maps_of_the_class_capsules_are_the_published_ones() -> None:
    model = trained_network("class_capsules", "mnist")
    sizes = [layer.in_size[0] for layer in model.capsules.layers]
    assert [*sizes, *model.capsules.out_shape[2:]] == [28, 28, 14, 7, 3, 1, 1]
    drawn = [m.out_features for m in model.decoder.modules() if isinstance(m, torch.nn.Linear)]
    assert drawn == [512, 1024, 784]


@pytest.mark.parametrize(
    ("name", "dataset", "children"),
    [
        ("heinsen_smallnorb", "smallnorb", 5184),
        ("capsnet", "mnist", 1152),
        ("capsnet_cifar10", "cifar10", 9216),
        ("self_routing_1", "cifar10", 2048),
        ("inverted_attention", "cifar10", 800),
        ("em_smallnorb", "smallnorb", 512),
        ("s4", "cifar10", 8),
        ("hitnet", "mnist", 0),
    ],
)
def test_children_are_counted(name: str, dataset: str, children: int) -> None:
    assert most_children(trained_network(name, dataset)) == children


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_names_its_images(name: str) -> None:
    preset = get_preset(name)
    assert preset.data
    assert {*preset.data} <= {*SETS, "imagenet"}
    assert {*preset.sizes} <= {*preset.data, "own"}
    with torch.device("meta"):
        assert cc.create_model(name).img_size == (preset.img_size, preset.img_size)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_names_its_paper(name: str) -> None:
    preset = get_preset(name)
    # Authors, title, venue, year.
    assert re.fullmatch(r'[A-Z][^"]+, "[A-Z][^"]+", .*20\d\d', preset.paper), preset.paper
    assert preset.choices or not preset.reconstruction
    assert not preset.choices or preset.choices.endswith(".")
    for text in (preset.paper, preset.choices):
        assert "  " not in text


def test_every_recipe_that_is_named_exists() -> None:
    assert get_preset("m1").recipe_names == ("paper", "fast", "strong")
    assert get_preset("capsnet").recipe_names == ("paper", "fast")
    for preset in PRESETS.values():
        assert preset.default_recipe in preset.recipe_names
        for recipe in preset.recipe_names:
            assert preset.get_recipe(recipe)["epochs"] >= 1


def test_every_network_has_a_recipe() -> None:
    assert all(preset.recipe is not None for preset in PEERS.values())


@pytest.mark.parametrize("name", PEERS)
def test_recipes_can_be_run(name: str) -> None:
    # On any dataset, also one that it was not published on.
    for dataset in ("mnist", "cifar10", "smallnorb"):
        trained_network(name, dataset)
    assert resolve(name, "smallnorb").recipe == "paper"
    assert resolve(name, "cifar10", "fast").epochs == 12
