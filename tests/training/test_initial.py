"""Runs that start from trained weights."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import clustercaps as cc
from clustercaps.cli import main
from clustercaps.models.transfer import head_names
from clustercaps.training import Stopped, TrainSettings, loop, resolve, train
from clustercaps.training.initial import set_training, start_from
from clustercaps.training.state import TrainState

SMALL = {"dim": 2, "votes": 2}
QUICK: dict[str, Any] = {"limit": 64, "batch_size": 32, "test_limit": 20, "model_settings": SMALL}


def quick(name: str = "m1", **changes: Any) -> TrainSettings:
    return resolve(name, "fashion-mnist-mini", "fast", **{"epochs": 2, **QUICK, **changes})


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with three classes, as somebody passed it on."""
    folder = tmp_path_factory.mktemp("other")
    torch.manual_seed(1)
    model = cc.create_model("m1", in_chans=1, num_classes=3, **SMALL)
    model.preprocessing = cc.models.Preprocessing("grey", 32, ("a", "b", "c"), (0.5,), (0.5,))
    model.save_pretrained(folder)
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return cc.from_pretrained(folder).state_dict()


def test_freeze_trains_the_head_only(
    other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = train(quick(init_from=str(other), freeze=True), tmp_path / "run")
    # 10 classes x (4 channels x 2 dimensions x 8 x 8 positions + 1).
    line = "new weights: head.bias, head.weight; training 5,130 of "
    assert line in capsys.readouterr().out
    assert result["init_new"] == ["head.bias", "head.weight"]
    assert result["frozen"] is True
    before, after = weights(other), weights(tmp_path / "run")
    assert after["head.weight"].shape == (10, 512)
    for name in before.keys() - {"head.weight", "head.bias"}:
        assert after[name].equal(before[name]), name
    card = (tmp_path / "run/model/README.md").read_text()
    assert f"started from | {other.name} (sha256 {result['init_sha256'][:12]})" in card
    assert str(other) not in card


def test_the_same_classes_keep_their_head(other: Path, tmp_path: Path) -> None:
    names = tuple("abc")
    model = cc.create_model("m1", in_chans=1, num_classes=3, **SMALL)
    start = start_from(model, str(other), names)
    assert start["init_new"] == []
    assert model.state_dict()["head.weight"].equal(weights(other)["head.weight"])
    # As many classes, but other ones.
    assert start_from(model, str(other), ("x", "y", "z"))["init_new"] != []
    # Another network has another digest; the same one has the same.
    assert start_from(model, str(other), names) == start


def test_random_numbers_do_not_depend_on_the_source(other: Path) -> None:
    model = cc.create_model("m1", in_chans=3, num_classes=3, **SMALL)
    torch.manual_seed(0)
    start_from(model, str(other), ())
    after = torch.rand(1)
    torch.manual_seed(0)
    assert after.equal(torch.rand(1))


def test_a_resumed_run_needs_the_source_no_more(
    other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    shutil.copytree(other, source)
    settings = quick(init_from=str(source))
    whole = train(settings, tmp_path / "whole")
    # Stopped in the second epoch, and once before the first step.
    for steps in (0, 3):
        run = tmp_path / f"run-{steps}"
        with monkeypatch.context() as patched:
            stop_after(steps, patched)
            with pytest.raises(Stopped if steps else KeyboardInterrupt):
                train(settings, run, save_every=0.0)
        source.rename(tmp_path / "away")
        resumed = train(settings, run, resume=True)
        (tmp_path / "away").rename(source)
        assert resumed["init_sha256"] == whole["init_sha256"]
        assert resumed["test_loss"] == whole["test_loss"]
        for name, tensor in weights(tmp_path / "whole").items():
            assert tensor.equal(weights(run)[name]), name


def stop_after(steps: int, patched: pytest.MonkeyPatch) -> None:
    """Interrupt a run: before its first step (0), or with a signal after some steps."""
    if not steps:

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(loop.Trainer, "_train_epoch", interrupt)
        return
    step = loop.Trainer._step

    def counted(self: Any, parts: Any) -> bool:
        finite = step(self, parts)
        if self.state.progress.steps == steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return finite

    patched.setattr(loop.Trainer, "_step", counted)


def test_running_statistics_stay_as_they_are() -> None:
    model = cc.create_model("vb_small", in_chans=1, num_classes=3)
    head = head_names(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in head)
    before = {n: b.clone() for n, b in model.named_buffers() if n not in head}
    assert any("running_mean" in name for name in before)
    set_training(model)
    model(torch.rand(2, 1, 32, 32))
    for name, buffer in before.items():
        assert model.get_buffer(name).equal(buffer), name
    model.requires_grad_(True)
    set_training(model)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["m1", "--init-from", "{other}"], "has votes=2 and not 5, dim=2 and not 6; train the"),
        (["capsnet", "--init-from", "{other}"], "is a CapsuleNet, this run trains a CapsNet"),
        (["m1", "--init-from", "{other}", "--img-size", "28"], "32x32, this run has 28x28; pass"),
        (["m1", "--init-from", "nowhere"], "nowhere is not a folder; pass"),
        (["m1", "--init-from", "m1:mnist"], "unknown dataset for weights of m1 'mnist'"),
        (["m1", "--freeze"], "freeze needs init_from"),
    ],
)
def test_refusals_leave_nothing(
    other: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [flag.format(other=other) for flag in flags]
    assert main(["train", *words, "--out", "run/deep"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("clustercaps: error: ")
    assert complaint in error
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_say_where_the_weights_come_from(
    other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    save = TrainState.save

    def recorded(self: TrainState, path: Path) -> None:
        seen.append((self.progress.steps, self.start))
        save(self, path)

    monkeypatch.setattr(TrainState, "save", recorded)
    train(quick(epochs=1, init_from=str(other)), tmp_path / "run")
    assert [steps for steps, _ in seen] == [0, 2]
    assert all(start["init_from"] == str(other) for _, start in seen)
