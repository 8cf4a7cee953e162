"""Training on familiar viewpoints, testing on familiar and novel ones."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clustercaps.data import FolderImages
from clustercaps.experiments.harness.following import few
from clustercaps.training import train
from clustercaps.training.batches import open_split
from clustercaps.training.loop import Trainer
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.settings import TrainSettings, resolve


def tiny(**changes: object) -> TrainSettings:
    size = {"epochs": 3, "epoch_images": 12, "batch_size": 4, "views": "azimuth"}
    form = {"model_settings": {"dim": 2, "votes": 4}}
    return resolve("m2", "rendered-norb", "fast", **{**size, **form, **changes})


@pytest.mark.parametrize(("views", "familiar", "novel"), [("azimuth", 0, 8), ("elevation", 0, 8)])
def test_parts_are_told_apart_by_viewpoint(views: str, familiar: int, novel: int) -> None:
    parts = {p: open_split(tiny(views=views), p, None, few) for p in ("train", "test", "novel")}
    for part, code in (("train", familiar), ("test", familiar), ("novel", novel)):
        images = parts[part]
        assert not isinstance(images, FolderImages)
        assert len(images) == 20
        assert images.meta[views].unique().tolist() == [code]
        assert images.meta["split"] == ("train" if part == "train" else "test")


def test_limits_are_balanced_and_the_same_every_time() -> None:
    settings = tiny(limit=10, test_limit=15)
    for part, count in (("train", 2), ("test", 3), ("novel", 3)):
        one, other = (open_split(settings, part, None, few) for _ in range(2))
        assert torch.bincount(one.labels).tolist() == [count] * 5
        assert one.pixels.equal(other.pixels)
    with pytest.raises(ValueError, match="test_limit is 21, but there are only 20 images"):
        open_split(tiny(test_limit=21), "novel", None, few)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="views is not supported by fashion-mnist-mini"):
        resolve("m1", "fashion-mnist-mini", "fast", views="azimuth")
    with pytest.raises(ValueError, match="views is not supported by folder:here"):
        resolve("m1", "folder:here", "fast", views="azimuth")
    with pytest.raises(ValueError, match="validate does not; set only one"):
        tiny(validate=True)
    with pytest.raises(ValueError, match="unknown views 'azimut'"):
        tiny(views="azimut")
    with pytest.raises(ValueError, match="needs the setting views"):
        open_split(tiny(views=""), "novel", None, few)


def test_every_epoch_is_tested_on_both(tmp_path: Path) -> None:
    result = train(tiny(), tmp_path / "run", load=few)
    lines = RunFolder(tmp_path / "run").metrics()
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert all(0 <= line[f"{part}_error"] <= 100 for line in lines for part in ("test", "novel"))
    assert lines[-1]["novel_error"] == result["novel_error"]
    assert lines[-1]["test_error"] == result["test_error"]
    assert (result["train_images"], result["test_images"], result["novel_images"]) == (20, 20, 20)


def test_short_epochs_have_as_many_images_as_asked_for(tmp_path: Path) -> None:
    seen = []
    step = Trainer._step

    def watched(self: Trainer, parts: list) -> bool:
        seen.append(sum(len(batch.labels) for batch in parts))
        return step(self, parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_step", watched)
        train(tiny(epoch_images=10), tmp_path / "run", load=few)
    assert seen == [4, 4, 2] * 3


def test_an_interrupted_run_ends_as_a_straight_one(tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(tiny(), straight, load=few)
    step = Trainer._step

    def breaks(self: Trainer, parts: list) -> bool:
        if self.state.progress.steps == 5:
            raise RuntimeError("power cut")
        return step(self, parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_step", breaks)
        with pytest.raises(RuntimeError, match="power cut"):
            train(tiny(), broken, save_every=0.0, load=few)
    assert len(RunFolder(broken).metrics()) == 1
    train(tiny(), broken, resume=True, load=few)
    ours, theirs = (
        [{k: v for k, v in line.items() if k != "seconds"} for line in RunFolder(path).metrics()]
        for path in (straight, broken)
    )
    assert ours == theirs
    one, other = (load_file(path / "model" / "model.safetensors") for path in (straight, broken))
    assert all(tensor.equal(other[name]) for name, tensor in one.items())
