"""Models on the Hugging Face Hub, here a small server on this machine with the real client."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers.hub import COMMIT, serving, uploading_to
from huggingface_hub import ModelCard

import clustercaps as cc
from clustercaps.cli import main
from clustercaps.models import ImageClassifier
from clustercaps.models.locate import locate
from clustercaps.training.finished import Trained


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    cc.create_model("m1", in_chans=1, img_size=8, dim=2).save_pretrained(tmp_path / "hub/user/m1")
    # Not to be downloaded.
    (tmp_path / "hub/user/m1/pytorch_model.bin").write_bytes(b"pickle")
    with serving(tmp_path / "hub") as address:
        yield address


def test_a_model_is_downloaded_once(hub: str, tmp_path: Path) -> None:
    load = partial(cc.from_pretrained, endpoint=hub, cache_dir=tmp_path / "cache")
    model = load("user/m1")
    expected = cc.from_pretrained(tmp_path / "hub/user/m1")
    images = torch.rand(2, 1, 8, 8)
    assert model(images).equal(expected(images))
    assert load(f"user/m1@{COMMIT}", num_classes=5).num_classes == 5
    assert not list((tmp_path / "cache").rglob("*.bin"))
    # The cache is enough.
    assert load("user/m1", local_files_only=True)(images).equal(model(images))


def test_what_is_not_there_is_named(hub: str, tmp_path: Path) -> None:
    find = partial(locate, endpoint=hub, cache_dir=tmp_path / "cache")
    with pytest.raises(FileNotFoundError, match="neither a folder here nor a model on the Hub"):
        find("user/none")
    with pytest.raises(FileNotFoundError, match="user/m1 on the Hub has no revision 'v9'"):
        find("user/m1@v9")


def test_without_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no route\nand much more text")

    monkeypatch.setattr("clustercaps.models.locate.snapshot_download", fail)
    (tmp_path / "image.png").write_bytes(b"")
    assert main(["predict", "user/m1", "image.png"]) == 2
    err = capsys.readouterr().err
    assert "cannot be downloaded from the Hub (no route); check the connection" in err
    assert err.count("\n") == 1


def test_mistyped_paths_are_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    asked: list[str] = []
    monkeypatch.setattr("clustercaps.models.locate.snapshot_download", asked.append)
    for name in ("runs/m1", "nothing", "a/b/c", str(tmp_path / "none"), "./user/repo"):
        with pytest.raises(FileNotFoundError, match="is not a folder; pass"):
            locate(name)
    assert asked == []


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", uploading_to(tmp_path / "hub"))
    return tmp_path / "hub"


def test_runs_are_pushed_with_a_card(uploads: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", "m1:fashion-mnist", "user/m1", "--licence", "cc-by-4.0"]) == 0
    assert COMMIT in capsys.readouterr().out
    folder = uploads / "user/m1"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("README.md", "config.json", "model.safetensors")
    ]
    pushed, own = cc.from_pretrained(folder), Trained.open("m1:fashion-mnist")
    assert pushed.preprocessing == own.preprocessing
    card = ModelCard.load(folder / "README.md")
    assert card.data.license == "cc-by-4.0"
    assert card.data.library_name == "clustercaps"
    assert card.data.eval_results is not None
    assert card.data.eval_results[0].metric_value == 0.948
    for fact in (
        "| network | `m1`, a `CapsuleNet` with 145,738 parameters |",
        "| data | fashion-mnist, 60,000 training images |",
        "| test error | **5.20 %** of 10,000 images",
        "| recipe | `strong`, 64 epochs, seed 0",
        "commit 1ce598704135",
        "| classes | T-shirt/top, Trouser,",
        "| licence | cc-by-4.0 for the weights; the dataset: MIT, Zalando SE |",
        'cc.from_pretrained("user/m1")',
        "clustercaps predict user/m1",
        "clustercaps train m1 --data fashion-mnist --recipe strong --seed 0 --epochs 64",
    ):
        assert fact in card.content, fact


def test_a_network_alone_keeps_its_card(uploads: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    model: ImageClassifier = cc.from_pretrained("m1:fashion-mnist")
    model.save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\nmine")
    assert main(["push", str(folder), "user/mine"]) == 0
    assert (uploads / "user/mine/README.md").read_text().endswith("mine")
    model.push_to_hub("user/other")
    card = (uploads / "user/other/README.md").read_text()
    assert "State here on which data the weights were trained" in card
    assert 'cc.from_pretrained("user/other")' in card


def test_failed_uploads_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise OSError("401 Unauthorized\nlong text")

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", fail)
    for name, complaint in [
        ("user/m1", "cannot upload to user/m1 (401 Unauthorized); check the connection, or log in"),
        ("m1", "the name on the Hub must be USER/REPO, got 'm1'"),
        ("us er/m1", "cannot upload to us er/m1: Repo id must use alphanumeric chars"),
    ]:
        assert main(["push", "m1:fashion-mnist", name]) == 2
        err = capsys.readouterr().err
        assert complaint in err
        assert err.count("\n") == 1


def test_hostile_names_stay_text_in_the_card(tmp_path: Path) -> None:
    model: ImageClassifier = cc.create_model("m1", num_classes=1, in_chans=1, img_size=8, dim=2)
    names = ("a|b\n# <script>",)
    model.preprocessing = cc.models.Preprocessing("grey", 8, names)
    model.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert r"a\|b\n# &lt;script>" in card
