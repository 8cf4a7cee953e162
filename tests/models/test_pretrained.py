import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import clustercaps as cc
from clustercaps.models import CapsuleNet


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    cc.create_model("m1", in_chans=1, img_size=(8, 12), dim=3).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["m1", "s1", "affine_capsules", "affine_cnn", "class_capsules"])
def test_round_trip(name: str, tmp_path: Path) -> None:
    model = cc.create_model(name, in_chans=1, img_size=28).eval()
    images = torch.rand(2, 1, 28, 28)
    model.save_pretrained(tmp_path)
    for loaded in (cc.from_pretrained(tmp_path), type(model).from_pretrained(tmp_path)):
        assert type(loaded) is type(model)
        assert not loaded.training
        assert loaded(images).equal(model(images))


def test_the_folder_is_plain(saved: Path) -> None:
    assert sorted(f.name for f in saved.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    config = json.loads((saved / "config.json").read_text())
    assert config["architecture"] == "CapsuleNet"
    assert config["img_size"] == [8, 12]
    assert config["votes"] == 5
    card = (saved / "README.md").read_text()
    assert "CapsuleNet" in card
    assert "dim=3" in card


def test_saving_again_keeps_an_edited_card(saved: Path) -> None:
    (saved / "README.md").write_text("mine")
    model = cc.create_model("m1", in_chans=1, img_size=8)
    model.save_pretrained(saved)
    assert (saved / "README.md").read_text() == "mine"
    assert cc.from_pretrained(saved).img_size == (8, 8)


def test_a_new_head_is_saved(saved: Path) -> None:
    model = cc.from_pretrained(saved)
    model.reset_classifier(4)
    model.save_pretrained(saved)
    assert cc.from_pretrained(saved)(torch.rand(1, 1, 8, 12)).shape == (1, 4)


def test_an_interrupted_save_leaves_the_old_model(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {f.name: f.read_bytes() for f in saved.iterdir()}

    def full_disk(self: object, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(CapsuleNet, "_save_pretrained", full_disk)
    with pytest.raises(OSError, match="No space left"):
        cc.create_model("m1").save_pretrained(saved)
    assert {f.name: f.read_bytes() for f in saved.iterdir()} == before


def test_saving_removes_what_a_killed_process_left(saved: Path) -> None:
    (saved / ".saving-x").mkdir()
    (saved / ".saving-x" / "model.safetensors").write_bytes(b"half")
    cc.create_model("m1", in_chans=1, img_size=8).save_pretrained(saved)
    names = sorted(path.name for path in saved.iterdir())
    assert names == ["README.md", "config.json", "model.safetensors"]
    modes = {path.stat().st_mode & 0o777 for path in saved.iterdir()}
    umask = os.umask(0)
    os.umask(umask)
    assert modes == {0o666 & ~umask}


def damage_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def drop_and_reshape(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["head.bias"] = torch.zeros(11)
    tensors["extra"] = tensors.pop("head.weight")
    save_file(tensors, folder / "model.safetensors")


def put_infinity(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["head.bias"][0] = float("inf")
    save_file(tensors, folder / "model.safetensors")


def put_pickle(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps({"a": 1}))


def change_config(**values: object) -> object:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))

    return change


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (damage_weights, r"model\.safetensors is corrupt"),
        (put_infinity, r"model\.safetensors is damaged: head.bias contains NaN or infinity"),
        (put_pickle, r"model\.safetensors is corrupt or not a safetensors file"),
        (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors is missing"),
        (lambda f: (f / "config.json").unlink(), r"config\.json is missing"),
        (lambda f: (f / "config.json").write_text("{"), r"config\.json is not valid JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "expected a JSON object"),
        (change_config(architecture="CapsuleNett"), "did you mean 'CapsuleNet'"),
        (change_config(votes=0), "votes must be an integer of at least 1"),
        (
            drop_and_reshape,
            r"head\.weight is missing; extra is not part of the network; "
            r"head\.bias has shape \(11,\), the network expects \(10,\)",
        ),
        (
            change_config(dim=4),
            r"vote\.weight has shape \(240, 1, 3, 3\), the network expects \(320,",
        ),
    ],
)
def test_damage_is_named(saved: Path, damage: object, complaint: str) -> None:
    damage(saved)
    with pytest.raises((ValueError, FileNotFoundError), match=complaint):
        cc.from_pretrained(saved)


def test_wrong_places(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        cc.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        CapsuleNet.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="describes a CapsuleNet, not a AffineCNN"):
        cc.models.AffineCNN.from_pretrained(saved)


def test_pickled_weights_are_never_read(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match="safetensors is missing"):
        cc.from_pretrained(saved)
