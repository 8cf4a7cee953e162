"""What does not belong to a run is refused, and a refused run leaves nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from clustercaps.cli import main
from clustercaps.training import RunFolder, TrainSettings, resolve, train
from clustercaps.training.run_folder import LOCK

TINY = {
    "limit": 32,
    "test_limit": 20,
    "batch_size": 16,
    "epochs": 3,
    "model_settings": {"dim": 2, "votes": 3, "channels": 2},
}


def tiny(**changes: object) -> TrainSettings:
    return resolve("m1", "fashion-mnist-mini", "fast", **{**TINY, **changes})


class Killed(Exception):
    pass


def interrupted(out: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """A run that ends after its second epoch, before it prints."""

    def end(line: str) -> None:
        if line.startswith("epoch 2/"):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("clustercaps.training.loop.say", end)
        with pytest.raises(Killed):
            train(tiny(**changes), out)


def rewrite(path: Path, tensors: Callable[[dict[str, Tensor]], None], **header: str | None) -> None:
    """Write a checkpoint again, as version 0.2.0 did: without a fingerprint."""
    with safe_open(path, framework="pt") as file:
        content = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata() or {})
    for name in ("run", "digest"):
        del metadata[name]
    tensors(content)
    metadata |= {name: value for name, value in header.items() if value is not None}
    save_file(content, path, metadata)


def state(**changes: object) -> str:
    whole = {"epoch": 2, "step": 0, "steps": 4, "loss": 0.0, "errors": 0, "seen": 0, "seconds": 1.0}
    return json.dumps({**whole, **changes})


def nothing(_: dict[str, Tensor]) -> None:
    pass


def drop_optimizer(tensors: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if name.startswith("optimizer.")]:
        del tensors[name]


def drop_average(tensors: dict[str, Tensor]) -> None:
    del tensors["average.head.bias"]


def reshape(tensors: dict[str, Tensor]) -> None:
    tensors["model.head.bias"] = torch.zeros(11)


def put_nan(tensors: dict[str, Tensor]) -> None:
    tensors["model.head.bias"][3] = float("nan")


def no_random_state(tensors: dict[str, Tensor]) -> None:
    tensors["process.random"].zero_()


def foreign(tensors: dict[str, Tensor]) -> None:
    tensors["optimizer.99.momentum_buffer"] = torch.zeros(3)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        interrupted(out, patch)
    return out


@pytest.mark.parametrize(
    ("change", "header", "complaint"),
    [
        (nothing, state(epoch=-1), "its epoch is -1"),
        (nothing, state(epoch=4, steps=8), "the run has 3 epochs"),
        (nothing, state(steps=5), "it counts 5 steps, 0 of them in epoch 3.*2 steps in an epoch"),
        (nothing, state(epoch=0, steps=0), "finished 0 epochs, but metrics.jsonl has 2"),
        (nothing, state(seconds="x"), "its seconds is 'x'"),
        (nothing, state(epoch=2.0), "its epoch is 2.0"),
        (nothing, "{}", r"its state has \[\], expected"),
        (nothing, "[]", "expected a JSON object, got list"),
        (nothing, "NaN", "NaN is not a JSON number"),
        (drop_optimizer, None, "its optimizer state is missing"),
        (foreign, None, "99.momentum_buffer belongs to no parameter"),
        (drop_average, None, "average.head.bias is missing"),
        (reshape, None, r"model.head.bias has shape \(11,\)"),
        (put_nan, None, "model.head.bias contains NaN"),
        (no_random_state, None, "its random state is invalid"),
    ],
)
def test_older_checkpoints_are_checked_as_far_as_possible(
    stopped: Path,
    tmp_path: Path,
    change: Callable[[dict[str, Tensor]], None],
    header: str | None,
    complaint: str,
) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    rewrite(out / "checkpoint.safetensors", change, state=header)
    files = {p.name: p.read_bytes() for p in out.iterdir()}
    with pytest.raises(ValueError, match=f"checkpoint.safetensors.*{complaint}.*") as caught:
        train(tiny(), out, resume=True)
    assert "--overwrite" in str(caught.value) or "JSON" in str(caught.value)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == files


def test_a_checkpoint_belongs_to_its_run(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(stopped, out)
    interrupted(other, monkeypatch, seed=1)
    shutil.copy(other / "checkpoint.safetensors", out)
    with pytest.raises(ValueError, match="belongs to another run: seed was 1, now 0"):
        train(tiny(), out, resume=True)
    shutil.copy(stopped / "checkpoint.safetensors", out)

    from clustercaps import data

    def load(name: str, split: str, folder: str | None) -> data.Images:
        images = data.load(name, split, folder)
        images.pixels[0, 0, 0, 0] += split == "train"
        return images

    with pytest.raises(ValueError, match="another run: the training images are not the same"):
        train(tiny(), out, resume=True, load=load)
    (out / "checkpoint.safetensors").unlink()
    with pytest.raises(ValueError, match=r"is missing, but .* metrics of 2 epochs.*--overwrite"):
        train(tiny(), out, resume=True)


def test_a_line_that_was_not_written_is_added(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, out = tmp_path / "straight", tmp_path / "run"
    train(tiny(), straight)
    shutil.copytree(stopped, out)
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    # Killed between checkpoint and line, and in the middle of the line.
    (out / "metrics.jsonl").write_text(lines[0] + lines[1][:20])
    train(tiny(), out, resume=True)
    ours, theirs = RunFolder(out).metrics(), RunFolder(straight).metrics()
    assert [line["test_loss"] for line in ours] == [line["test_loss"] for line in theirs]
    (out / "result.json").unlink()
    (out / "metrics.jsonl").write_text(lines[0])
    with pytest.raises(ValueError, match=r"has finished 3 epochs, but metrics.jsonl has 1"):
        train(tiny(), out, resume=True)


def test_temporary_files_of_killed_processes_are_removed(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    for name in (".tmpAb12Cd", ".checkpoint.safetensors.0a1b2c3d.unfinished"):
        (out / name).write_bytes(b"half")
    (out / "model" / ".saving-x").mkdir(parents=True)
    (out / "model" / ".saving-x" / "model.safetensors").write_bytes(b"half")
    train(tiny(), out, resume=True)
    assert [p.name for p in out.rglob(".*")] == [LOCK]
    modes = {p.stat().st_mode & 0o777 for p in out.rglob("*") if p.is_file()}
    assert modes == {(out / "settings.json").stat().st_mode & 0o777}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--set votes=0", "votes must be"),
        ("--set votes=NaN", "finite"),
        ("--set votes=1e999", "finite"),
        ("--lr nan", "lr must be a finite number"),
        ("--weight-decay inf", "weight_decay must be a finite number"),
        ("--save-every nan", "save_every must be"),
        ("--workers -1", "workers must be"),
        ("--timeout nan", "timeout must be"),
        ("--limit 999999", "limit is 999,999"),
    ],
)
def test_a_refused_command_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, complaint: str
) -> None:
    out = tmp_path / "new" / "run"
    assert main(["train", "m1", *flags.split(), "--out", str(out)]) == 2
    err = capsys.readouterr().err.splitlines()
    assert complaint in err[-1]
    assert list(tmp_path.iterdir()) == []


def test_overwrite_with_refused_settings_keeps_the_run(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    bad = tiny(model_settings={"dim": 0})
    with pytest.raises(ValueError, match="dim must be"):
        train(bad, out, overwrite=True)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_weights_that_are_not_finite_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen = tmp_path / "run", []
    from clustercaps.training.loop import Trainer

    step = Trainer._step

    def poisoned(self: Any, parts: Any) -> bool:
        good = step(self, parts)
        seen.append(good)
        if len(seen) == 4:
            self.state.model.head.bias.data[0] = float("inf")
        return good

    monkeypatch.setattr(Trainer, "_step", poisoned)
    with pytest.raises(
        ValueError, match=r"head.bias is not finite in epoch 2, after step 2.*good checkpoint.*--lr"
    ):
        train(tiny(), out)
    assert len(RunFolder(out).metrics()) == 1
    assert RunFolder(out).result is None
    monkeypatch.undo()
    assert train(tiny(), out, resume=True)["epochs"] == 3
