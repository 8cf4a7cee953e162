"""Trained networks from every kind of source, and image files as their training images."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import clustercaps as cc
from clustercaps import data
from clustercaps.cli import main
from clustercaps.training.finished import Trained
from clustercaps.training.preprocessing import prepare_of, preprocessing_of, read_pixels

OLD = Path(__file__).parent / "data/model-0.1.0"
PACKAGED = cc.models.packaged.WEIGHTS / "m1-fashion-mnist"


@pytest.fixture(scope="module")
def shoe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "shoe.png"
    Image.fromarray(data.load("fashion-mnist-mini", "test").pixels[9, 0].numpy()).save(path)
    return path


def test_every_source_gives_the_same_answer(shoe: Path, tmp_path: Path) -> None:
    cc.from_pretrained("m1:fashion-mnist").save_pretrained(tmp_path / "saved")
    names = ["m1:fashion-mnist", PACKAGED, PACKAGED / "model", tmp_path / "saved"]
    found = [next(Trained.open(name).predict([shoe])) for name in names]
    assert all(each.equal(found[0]) for each in found)
    alone = Trained.open(tmp_path / "saved")
    assert alone.settings is None
    assert alone.title == "CapsuleNet"
    assert alone.data_name == "fashion-mnist"
    assert Trained.open(PACKAGED / "model").settings is not None


def test_runs_of_earlier_versions_use_their_settings(shoe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(PACKAGED, run)
    expected = Trained.open(run)
    model = cc.from_pretrained(run)
    model.preprocessing = None
    model.save_pretrained(run / "model")
    assert "preprocessing" not in (run / "model/config.json").read_text()
    for name in (run, run / "model"):
        assert Trained.open(name).preprocessing == expected.preprocessing


def test_networks_of_earlier_versions_say_what_is_missing(
    shoe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(OLD), str(shoe)]) == 2
    err = capsys.readouterr().err
    assert "has no preprocessing (class names, normalisation, image size); pass --data" in err
    assert err.count("\n") == 1
    assert main(["predict", str(OLD), str(shoe), "--data", "fashion-mnist"]) == 0
    assert "Pullover" in capsys.readouterr().out
    assert main(["predict", str(OLD), str(shoe), "--data", "cifar10"]) == 2
    assert "rgb images of 32x32 for a network with 1 colour" in capsys.readouterr().err


def test_a_new_head_has_no_names(shoe: Path, tmp_path: Path) -> None:
    cc.from_pretrained("m1:fashion-mnist", num_classes=3).save_pretrained(tmp_path / "saved")
    with pytest.raises(ValueError, match="has no class names; pass --data"):
        Trained.open(tmp_path / "saved")


def test_evaluate_needs_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = cc.create_model("m1", num_classes=2, in_chans=1, img_size=8, dim=2)
    model.preprocessing = cc.models.Preprocessing("grey", 8, ("a", "b"))
    model.save_pretrained(tmp_path)
    for command in ("evaluate", "explore"):
        assert main([command, str(tmp_path)]) == 2
        assert "pass --data" in capsys.readouterr().err


@pytest.mark.parametrize("size", [28, 32, 56])
@pytest.mark.parametrize("name", ["mnist", "cifar10", "smallnorb", "folder:x"])
def test_preprocessing_is_that_of_the_test_images(name: str, size: int) -> None:
    stored = preprocessing_of(name, size, ("a",))
    assert prepare_of(stored) == data.test_transform(name, size=size)
    assert stored.data == ("" if name == "folder:x" else name)
    assert cc.models.Preprocessing.from_plain(stored.to_plain(), "here") == stored


# 37 pixels before a crop of 32: an odd number is cut off.
@pytest.mark.parametrize("size", [28, 32])
def test_image_files_are_read_as_in_their_folder(size: int, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    for split in ("train", "val"):
        (tmp_path / split / "a").mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / split / "a" / "x.png")
    images = data.open_folder(f"folder:{tmp_path}", "test", crop=size)
    stored = preprocessing_of(f"folder:{tmp_path}", size, images.class_names)
    assert read_pixels(tmp_path / "val/a/x.png", stored).equal(images[0][0])


def test_grey_files_keep_their_values(shoe: Path) -> None:
    stored = Trained.open("m1:fashion-mnist").preprocessing
    expected = data.load("fashion-mnist-mini", "test").pixels[9]
    assert (read_pixels(shoe, stored).int() - expected.int()).abs().max() <= 1


def test_stereo_pairs_are_refused(shoe: Path) -> None:
    with pytest.raises(ValueError, match="a single file cannot give them"):
        read_pixels(shoe, preprocessing_of("smallnorb", 32, ("a",)))
    assert torch.is_tensor(read_pixels(shoe, preprocessing_of("cifar10", 32, ("a",))))
