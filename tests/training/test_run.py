import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clustercaps import data
from clustercaps.models import create_model
from clustercaps.training import initial, train, train_seeds
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.settings import TrainSettings, resolve

# A network and a slice of data that train in seconds.
TINY = {"limit": 200, "batch_size": 32, "epochs": 2, "model_settings": {"dim": 2, "votes": 4}}
FLAGS = "--limit 200 --batch-size 32 --set dim=2 --set votes=4 --no-figures".split()  # noqa: SIM905


def tiny(**changes: object) -> TrainSettings:
    return resolve("m1", "fashion-mnist-mini", "fast", **{**TINY, **changes})


@pytest.fixture(autouse=True)
def _small_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data.load

    def load(name: str, split: str = "train", *args: object, **kwargs: object) -> data.Images:
        images = whole(name, split, *args, **kwargs)
        return images.subset(slice(0, 100)) if split == "test" else images

    monkeypatch.setattr(data, "load", load)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def assert_same_weights(one: Path, other: Path) -> None:
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.equal(theirs[name]), name


def test_a_run_leaves_everything_one_needs(tmp_path: Path) -> None:
    result = train(tiny(), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert folder.result == result
    assert folder.settings == tiny()
    lines = folder.metrics()
    assert [line["epoch"] for line in lines] == [1, 2]
    assert result["test_error"] == lines[-1]["test_error"]
    assert result["test_images"] == 100
    assert result["weights"] == "average at the last epoch"
    for key in ("machine", "torch", "commit", "train_seconds", "seed", "class_names"):
        assert result[key] not in (None, "")
    assert not [f for f in (tmp_path / "run").rglob("*unfinished*")]


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(tiny(epochs=1, seed=seed), tmp_path / name)
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    assert not weights(tmp_path / "a")["head.bias"].equal(weights(tmp_path / "c")["head.bias"])


def test_accumulation_changes_memory_not_the_result(tmp_path: Path) -> None:
    train(tiny(epochs=1, lr=0.01), tmp_path / "whole")
    train(tiny(epochs=1, lr=0.01, accumulate=3), tmp_path / "parts")
    ours, theirs = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4)


def test_bf16_runs(tmp_path: Path) -> None:
    result = train(tiny(epochs=1, precision="bf16"), tmp_path / "run")
    assert 0 <= result["test_error"] <= 100


def test_edited_settings_of_a_finished_run_are_refused(tmp_path: Path) -> None:
    train(tiny(epochs=1), tmp_path)
    stored = tmp_path / "settings.json"
    stored.write_text(stored.read_text().replace('"seed": 0', '"seed": 7'))
    with pytest.raises(ValueError, match="has seed 7, but the run was finished with 0"):
        train(tiny(epochs=1, seed=7), tmp_path, resume=True)


def test_folders_are_guarded(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(tiny(epochs=1), out)
    with pytest.raises(ValueError, match="is finished; --resume continues it, --overwrite"):
        train(tiny(epochs=1), out)
    with pytest.raises(ValueError, match="exclude each other"):
        train(tiny(epochs=1), out, resume=True, overwrite=True)
    with pytest.raises(ValueError, match=r"cannot resume .*: lr was 0\.\d+, now 0\.5"):
        train(tiny(epochs=1, lr=0.5), out, resume=True)
    # A finished run is not trained again.
    before = (out / "checkpoint.safetensors").stat().st_mtime_ns
    assert train(tiny(epochs=1), out, resume=True) == RunFolder(out).result
    assert (out / "checkpoint.safetensors").stat().st_mtime_ns == before
    train(tiny(epochs=1, seed=3), out, overwrite=True)
    assert RunFolder(out).result["seed"] == 3
    holder = RunFolder(out)
    holder._take_lock()
    with pytest.raises(ValueError, match=f"in use by process {os.getpid()}"):
        train(tiny(epochs=1), out, overwrite=True)
    holder.close()
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.png").write_bytes(b"")
    with pytest.raises(ValueError, match="is not empty and not a run"):
        train(tiny(epochs=1), other, overwrite=True)
    assert (other / "cat.png").exists()


def test_a_loss_that_explodes_stops_the_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(tiny(epochs=1), out)
    (out / "result.json").unlink()
    good = (out / "checkpoint.safetensors").read_bytes()
    settings = tiny(epochs=3, lr=1e30, clip_norm=0.0, momentum=0.0, nesterov=False)
    with pytest.raises(
        ValueError, match=r"not finite in epoch 1, step \d+, at learning rate .*first seen in"
    ):
        train(settings, tmp_path / "bad")
    assert not (tmp_path / "bad" / "result.json").exists()
    assert (out / "checkpoint.safetensors").read_bytes() == good


def test_the_layer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def broken(*args: object, **kwargs: object) -> torch.nn.Module:
        model = create_model(*args, **kwargs)
        model.capsules.layers[2].register_forward_hook(lambda m, i, output: output * float("nan"))
        return model

    monkeypatch.setattr(initial, "create_model", broken)
    with pytest.raises(ValueError, match=r"step 1,.*output of capsules\.layers\.2 \(ClusterCaps"):
        train(tiny(), tmp_path / "run")


def test_several_seeds(tmp_path: Path) -> None:
    summary = train_seeds(tiny(epochs=1), [0, 1], tmp_path)
    errors = [RunFolder(tmp_path / f"seed-{s}").result["test_error"] for s in (0, 1)]
    assert summary["mean"] == pytest.approx(sum(errors) / 2)
    assert summary["sd"] == pytest.approx(abs(errors[0] - errors[1]) / 2**0.5)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary


def test_64_images_are_learnt_by_heart(tmp_path: Path) -> None:
    settings = resolve(
        "m1",
        "fashion-mnist-mini",
        "fast",
        limit=64,
        epochs=30,
        lr=0.02,
        augment=False,
        average=0.0,
        test_every=30,
        batch_size=16,
        model_settings={"dim": 3, "votes": 3},
    )
    train(settings, tmp_path / "run")
    assert RunFolder(tmp_path / "run").metrics()[-1]["train_error"] == 0


@pytest.fixture(autouse=True)
def _one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes that wait for each other's threads on two cores take many times as long.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def command(out: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "clustercaps", "train", "m1", *FLAGS, "--out", str(out), *flags]


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    flags = ("--epochs", "12", "--test-every", "12")
    subprocess.run(command(straight, *flags), check=True, capture_output=True)
    process = subprocess.Popen(command(stopped, *flags), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"clustercaps train --resume --out {stopped}" in said
    resume = [sys.executable, "-m", "clustercaps", "train", "--resume", "--out", str(stopped)]
    subprocess.run(resume, check=True, capture_output=True)
    assert_same_weights(straight, stopped)


def kill_after_saves(process: "subprocess.Popen[bytes]", out: Path, saves: int) -> None:
    """Kill a run once it has written that many more checkpoints."""
    seen: set[int] = set()
    while process.poll() is None and len(seen) <= saves:
        with contextlib.suppress(FileNotFoundError):
            seen.add((out / "checkpoint.safetensors").stat().st_mtime_ns)
        time.sleep(0.001)
    process.kill()
    process.wait()


@pytest.mark.slow
def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    flags = ("--epochs", "8", "--save-every", "0", "--test-every", "4")
    subprocess.run(command(straight, *flags), check=True, capture_output=True)
    chance = random.Random(0)
    for _ in range(4):
        process = subprocess.Popen(command(killed, *flags, "--resume"), stdout=subprocess.DEVNULL)
        kill_after_saves(process, killed, chance.randint(1, 14))
        assert process.returncode == -signal.SIGKILL
    subprocess.run(command(killed, *flags, "--resume"), check=True, capture_output=True)
    assert_same_weights(straight, killed)
    epochs = [line["epoch"] for line in RunFolder(killed).metrics()]
    assert epochs == list(range(1, 9))
    for ours, theirs in zip(
        RunFolder(killed).metrics(), RunFolder(straight).metrics(), strict=True
    ):
        assert {k: v for k, v in ours.items() if k != "seconds"} == {
            k: v for k, v in theirs.items() if k != "seconds"
        }
    assert not list(killed.rglob("*unfinished*"))
    assert not list(killed.rglob(".saving-*"))
