"""What is stored with the weights about images and classes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clustercaps as cc
from clustercaps.models import Preprocessing
from clustercaps.models.packaged import list_pretrained

GOOD = Preprocessing(
    colour="rgb",
    img_size=8,
    class_names=("cat", "dog"),
    mean=(0.5, 0.4, 0.3),
    std=(0.2, 0.2, 0.1),
    file_size=9,
    file_crop=8,
)


def saved(folder: Path, preprocessing: Preprocessing | None = GOOD) -> Path:
    model = cc.create_model("m1", num_classes=2, img_size=8, dim=2, votes=2)
    model.preprocessing = preprocessing
    model.save_pretrained(folder)
    return folder


def test_it_is_saved_with_the_weights(tmp_path: Path) -> None:
    stored = json.loads((saved(tmp_path) / "config.json").read_text())["preprocessing"]
    assert stored["class_names"] == ["cat", "dog"]
    assert stored["mean"] == [0.5, 0.4, 0.3]
    assert cc.from_pretrained(tmp_path).preprocessing == GOOD


def test_networks_without_it_load(tmp_path: Path) -> None:
    assert "preprocessing" not in (saved(tmp_path, None) / "config.json").read_text()
    assert cc.from_pretrained(tmp_path).preprocessing is None


def test_other_classes_have_no_names(tmp_path: Path) -> None:
    model = cc.from_pretrained(saved(tmp_path))
    model.reset_classifier(2)
    assert model.preprocessing == GOOD
    model.reset_classifier(3)
    assert model.preprocessing == replace(GOOD, class_names=())


@pytest.mark.parametrize("name", list_pretrained())
def test_packaged_weights_have_it(name: str) -> None:
    stored = cc.from_pretrained(name).preprocessing
    assert stored is not None
    assert stored.data == name.partition(":")[2]
    assert len(stored.class_names) == 10


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"mean": [0.5]}, "mean must have 3 numbers for rgb images, got 1"),
        ({"mean": [0.5, 0.5, 1e400]}, "too large; all numbers must be finite"),
        ({"mean": [0.5, 0.5, "x"]}, "mean must be a list of numbers or null, got"),
        ({"mean": None}, "mean and std go together"),
        ({"std": [0.1, 0.1, 0]}, "std must be positive"),
        ({"colour": "gray"}, "unknown colour 'gray'; did you mean 'grey'"),
        ({"colour": "grey", "mean": [0.5], "std": [1]}, "network with 3 colour channels"),
        ({"img_size": 0}, "img_size must be an integer of at least 1"),
        ({"img_size": 7, "file_crop": None}, "rgb images of 7x7 for a network"),
        ({"file_crop": 10}, r"file_crop \(10\) must not exceed file_size \(9\)"),
        ({"file_crop": 7}, "a crop of 7 must give images of img_size"),
        ({"class_names": ["cat"]}, "1 class names for a network with 2 classes"),
        ({"class_names": ["cat", 3]}, "class_names must be a list of texts"),
        ({"class_names": ["cat", ""]}, "a class name is empty"),
        ({"meen": [1]}, "unknown setting 'meen'; did you mean 'mean'"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    path = saved(tmp_path) / "config.json"
    config = json.loads(path.read_text())
    text = json.dumps({**config, "preprocessing": {**config["preprocessing"], **change}})
    path.write_text(text.replace("Infinity", "1e400"))
    with pytest.raises(ValueError, match=complaint) as caught:
        cc.from_pretrained(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("content", "complaint"), [(3, "must be an object"), ({}, "lacks colour")])
def test_something_else_is_refused(content: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"config: preprocessing {complaint}"):
        Preprocessing.from_plain(content, "config")


def test_saving_checks_it_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 class names for a network with 2"):
        saved(tmp_path / "model", replace(GOOD, class_names=("cat",)))
    assert not (tmp_path / "model").exists()
