"""Runs on two processes: the same curve as on one, and resumed to the same bits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from helpers.two_processes import FLAGS, children, environment, same_weights, torchrun

from clustercaps.training import processes
from clustercaps.training.processes import resume_command
from clustercaps.training.run_folder import RunFolder

RUN = [*FLAGS, "--epochs", "3", "--lr", "0.01", "--save-every", "0"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "two"
    done = subprocess.run(
        torchrun(*RUN, "--out", str(out)),
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_two_processes_have_the_curve_of_one(two: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    command = [sys.executable, "-m", "clustercaps", "train", *RUN, "--out", str(one)]
    subprocess.run(command, check=True, capture_output=True, env=environment())
    result = RunFolder(two).result
    assert result is not None
    assert (result["processes"], result["test_images"]) == (2, 100)
    for ours, theirs in zip(RunFolder(two).metrics(), RunFolder(one).metrics(), strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-3)
        assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-3)


@pytest.mark.slow
def test_a_run_whose_second_process_was_killed_is_resumed(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    started = subprocess.Popen(
        torchrun(*RUN, "--out", str(out)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    while not (out / "checkpoint.safetensors").exists():
        assert started.poll() is None
        time.sleep(0.002)
    os.kill(children(started.pid)[1], signal.SIGKILL)
    _, errors = started.communicate(timeout=120)
    assert started.returncode != 0
    # Rank 0 says so, if torchrun has not ended it before.
    said = [line for line in errors.splitlines() if line.startswith("clustercaps: error")]
    for line in said:
        assert "Resume with: torchrun --nproc-per-node 2 -m clustercaps train --resume" in line
    assert RunFolder(out).result is None
    done = subprocess.run(
        torchrun("--resume", "--no-figures", "--out", str(out)),
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert same_weights(out, two)
    assert [line["epoch"] for line in RunFolder(out).metrics()] == [1, 2, 3]


def test_the_command_to_resume_has_the_arguments_of_torchrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = Path("my runs")
    assert resume_command(out) == "clustercaps train --resume --out 'my runs'"
    assert resume_command(out, "/data").endswith("--data-dir /data")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    # The parent of this process is not torchrun.
    assert resume_command(Path("a")) == (
        "torchrun --nnodes 2 --nproc-per-node 4 -m clustercaps train --resume --out a"
    )
    given = ["--nproc-per-node", "2", "--node-rank", "1"]
    lines = [
        ["python", "-m", "torch.distributed.run", *given, "-m", "clustercaps", "train", "m1"],
        ["python", "/usr/bin/torchrun", *given, "/usr/bin/clustercaps", "train", "m1"],
    ]
    for line in lines:
        words = "\0".join(line).encode()
        monkeypatch.setattr(Path, "read_bytes", lambda _, words=words: words)
        assert processes.launcher() == ["torchrun", *given, "-m"]


def test_one_process_keeps_its_sums_on_the_cpu() -> None:
    for count, expected in ((1, "cpu"), (2, "mps")):
        accelerator = Accelerator.__new__(Accelerator)
        accelerator.state = SimpleNamespace(device=torch.device("mps"), num_processes=count)
        assert processes.exchange_device(accelerator).type == expected
