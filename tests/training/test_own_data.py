"""Runs on one's own images: folders, and images given in Python."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.pictures import write_pictures

from clustercaps.cli import main
from clustercaps.data import FolderImages, Images
from clustercaps.experiments import own_data
from clustercaps.training import RunFolder, Trained, TrainSettings, resolve, train
from clustercaps.training.batches import open_split
from clustercaps.training.run_data import RunData
from clustercaps.training.settings import from_json

TINY = "--img-size 12 --batch-size 8 --epochs 2 --workers 0 --set dim=2 --set votes=2 --no-figures"
NETWORK = {"dim": 2, "votes": 2}


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("divided")
    write_pictures(root / "train", 10)
    write_pictures(root / "test", 4, seed=1)
    return f"folder:{root}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"folder:{write_pictures(tmp_path_factory.mktemp('whole') / 'all', 10)}"


def small(data: str, **changes: Any) -> TrainSettings:
    return resolve("m1", data, **{"img_size": 12, "model_settings": NETWORK, **changes})


def test_the_recipe_of_own_images() -> None:
    settings = resolve("m1", "folder:x")
    assert (settings.recipe, settings.side, settings.optimizer) == ("strong", 64, "muon")
    assert settings.scale_head
    assert (settings.batch_size, settings.epochs) == (32, 30)
    assert settings.model_settings == {"global_pool": "avg"}
    assert resolve("m1", "folder:x", model_settings={"global_pool": ""}).model_settings == {
        "global_pool": ""
    }
    # Weights to start from have the usual head and size.
    start = resolve("m1", "folder:x", init_from="m1:fashion-mnist")
    assert (start.side, start.model_settings) == (32, {})
    assert (settings.normalise, settings.memory_gb) == ("data", 1.0)
    assert resolve("capsnet", "folder:x").side == 28
    assert resolve("imagenet_m4", "folder:x").side == 224
    # Built-in datasets are trained as before.
    usual = resolve("m1", "cifar10", "strong")
    assert (usual.side, usual.scale_head, usual.normalise, usual.epochs) == (
        *(32, False, "published"),
        60,
    )
    assert usual.model_settings == {}


def test_the_defaults_are_those_that_were_compared() -> None:
    ours = resolve("m1", "own:x", img_size=32)
    assert ours == resolve("m1", "own:x", "strong", **own_data.CHOSEN)


def test_small_folders_get_more_epochs(divided: str) -> None:
    # 20 training images are one step of 32.
    assert resolve("m1", divided).epochs == 200
    # With batches of 2, 800 steps are 80 epochs; with a limit, as many images count.
    assert resolve("m1", divided, batch_size=2).epochs == 80
    assert resolve("m1", divided, batch_size=2, limit=10).epochs == 160
    assert resolve("m1", divided, epochs=3).epochs == 3
    assert resolve("m1", divided, "fast").epochs == 12
    assert resolve("m1", "folder:nowhere").epochs == 30
    with pytest.raises(ValueError, match="batch_size must be"):
        resolve("m1", divided, batch_size=0)


def test_runs_of_earlier_versions_read_folders_as_before(divided: str) -> None:
    stored = json.loads(small(divided, recipe="fast").to_json())
    for name in ("scale_head", "normalise", "memory_gb", "early_stop"):
        del stored[name]
    run = RunData(from_json(json.dumps(stored), "x"))
    assert isinstance(run.train, FolderImages)
    assert run.statistics is None
    assert run.prepare.mean == (0.485, 0.456, 0.406)
    assert from_json(json.dumps({**stored, "img_size": 0}), "x").side == 224


def test_streamed_and_decoded_test_images_are_the_same(divided: str) -> None:
    decoded = open_split(small(divided), "test", None)
    streamed = open_split(small(divided, memory_gb=0.0), "test", None)
    assert isinstance(decoded, Images)
    assert isinstance(streamed, FolderImages)
    assert torch.equal(decoded.pixels, torch.stack([streamed[i][0] for i in range(8)]))
    # 20 images of 3 x 14 x 14 bytes are too many for this limit.
    assert isinstance(open_split(small(divided, memory_gb=1e-8), "train", None), FolderImages)


@pytest.mark.parametrize("memory", [0.0, 1.0])
def test_validation_and_limits(divided: str, memory: float) -> None:
    settings = small(divided, validate=True, limit=6, test_limit=2, memory_gb=memory)
    run = RunData(settings)
    assert torch.bincount(run.train.labels).tolist() == [3, 3]
    assert torch.bincount(run.tests["test"].labels).tolist() == [1, 1]
    assert "6 training and 2 validation images of 2 classes at 12x12" in run.describe()
    assert ("in memory" in run.describe()) == bool(memory)
    assert "held out" not in run.describe()


def test_one_command_for_a_folder_without_a_split(
    whole: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    flags = TINY.replace("--no-figures", "--epochs 3").split()
    assert main(["train", "m1", "--data", whole, *flags, "--out", str(out)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "a fifth of each class is held out for testing" in line]
    result = RunFolder(out).result
    assert result is not None
    assert (result["train_images"], result["test_images"]) == (16, 4)
    assert (out / "routing.png").exists()
    trained = Trained.open(out)
    run = RunData(small(whole))
    assert (trained.prepare.mean, trained.prepare.std) == run.statistics
    # The images that `evaluate` reads are those that the run was tested on.
    score = trained.score(trained.open_images(whole))
    assert score.errors == result["test_errors"]
    assert score.loss == pytest.approx(result["test_loss"], abs=1e-5)
    assert main(["data", "show", whole, "--out", str(tmp_path / "sheet.png")]) == 0
    assert (tmp_path / "sheet.png").exists()


REFUSALS = [
    ("--data folder:nowhere", "nowhere: cannot read folder"),
    ("--data {whole}/dark", "no class subfolders"),
    ("--data {one}", "has 1 class; a classifier needs at least two"),
    ("--data {broken}", "4.png: not a readable image"),
    ("--data {whole} --limit 999", "limit is 999, but there are only 16 images"),
    ("--data {whole} --test-limit 999 --validate", "test_limit is 999"),
    ("--data {whole} --views azimuth", "views is not supported"),
    ("--data {whole} --img-size 0 --set votes=0", "votes must be"),
    ("--data {whole} --memory-gb 0 --erase 0.5", "need augment and a dataset in memory"),
    ("--data {whole} --memory-gb 1e-9 --erase 0.5", "allow that with --memory-gb"),
    ("--data {whole} --early-stop 3", "early_stop needs validate"),
    ("--data {whole} --set global_pool=min", "unknown global_pool 'min'"),
    ("--data {whole} --crop-area 1", "crop_area must be in [0, 1)"),
    ("--data {whole} --crop-area 0.5 --no-augment", "crop_area is for folders and images given"),
    ("--data fashion-mnist-mini --crop-area 0.5", "crop_area is for folders and images given"),
    ("--data own:mine", "are given in Python"),
    ("--data {broken} --memory-gb 0", "4.png: not a readable image"),
    ("--data {whole} --lr 1e30 --optimizer sgd", "nothing is kept; try a smaller --lr"),
]


@pytest.mark.parametrize(("flags", "complaint"), REFUSALS)
def test_a_refused_command_leaves_nothing(
    whole: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: str,
    complaint: str,
) -> None:
    one, broken, out = tmp_path / "one", tmp_path / "broken", tmp_path / "new" / "run"
    if "{one}" in flags or "{broken}" in flags:
        write_pictures(one, 5)
        write_pictures(broken, 5)
        (one / "light").rename(tmp_path / "light")
        (broken / "light" / "4.png").write_bytes(b"broken")
    flags = flags.format(whole=whole, one=f"folder:{one}", broken=f"folder:{broken}")
    assert main(["train", "m1", *TINY.split(), *flags.split(), "--out", str(out)]) == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()


def pixels(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(count) % 2
    noise = torch.randint(0, 100, (count, 10, 9, 3), generator=torch.Generator().manual_seed(0))
    return (noise + 150 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels


def given(**changes: Any) -> TrainSettings:
    return small("own:mine", **{"epochs": 2, "batch_size": 8, **changes})


def test_images_given_in_python(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = train(given(), out, train=pixels(16), test=pixels(6), class_names=("dark", "light"))
    assert (result["train_images"], result["test_images"]) == (16, 6)
    assert result["class_names"] == ["dark", "light"]
    folder = write_pictures(tmp_path / "pictures", 2)
    trained = Trained.open(out)
    probabilities = list(trained.predict(sorted(folder.rglob("*.png"))))
    assert len(probabilities) == 4
    assert trained.score(trained.open_images(f"folder:{folder}", "all")).total == 4
    with pytest.raises(ValueError, match=r"own:mine were given in Python; pass --data folder:"):
        trained.open_images("own:mine")


def test_own_images_are_resumed_with_the_same_images_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, out = tmp_path / "straight", tmp_path / "run"
    expected = train(given(), straight, train=pixels(20))
    assert expected["test_images"] == 4

    def end(line: str, _: object = None) -> None:
        if line.startswith("epoch 1/"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("clustercaps.training.loop.say", end)
        with pytest.raises(KeyboardInterrupt):
            train(given(), out, train=pixels(20))
    images, labels = pixels(20)
    other = images.clone()
    other[7] = 0
    with pytest.raises(
        ValueError, match=r"another run: the (training|test) images are not the same"
    ):
        train(given(), out, resume=True, train=(other, labels))
    assert (
        train(given(), out, resume=True, train=(images, labels))["test_loss"]
        == (expected["test_loss"])
    )


@pytest.mark.parametrize(
    ("changes", "options", "complaint"),
    [
        ({}, {"train": 3}, "train: expected a torch Dataset"),
        ({}, {"test": pixels(4)}, "test and class_names need train"),
        ({}, {}, "pass train= and test="),
        ({"data": "cifar10"}, {"train": pixels(8)}, "for settings with data 'own:NAME'"),
        ({}, {"train": (pixels(8)[0], [0] * 8)}, "train has one class only"),
        ({}, {"train": pixels(8), "test": (pixels(4)[0][..., :1], [0] * 4)}, "3 colour channels"),
    ],
)
def test_other_images_in_python_are_refused(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], complaint: str
) -> None:
    settings = small(changes.get("data", "own:mine"))
    with pytest.raises(ValueError, match=complaint):
        train(settings, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
