"""Several cells one after the other, on the same two processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from clustercaps.experiments.harness.store import read_rows


@pytest.mark.slow
def test_two_processes_measure_every_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes that wait for each other's threads on two cores take many times as long.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = ["-m", "clustercaps", "reproduce", "ablation", "--budget", "smoke"]
    done = subprocess.run(
        [*torchrun, *command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows = read_rows(tmp_path / "ablation-smoke.csv")
    assert [(row["cell"], row["processes"]) for row in rows] == [
        ("m1/cluster", 2),
        ("m1/uniform", 2),
    ]
    assert done.stdout.count("| m1 |") == 1
