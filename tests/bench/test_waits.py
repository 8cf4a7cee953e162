import csv
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clustercaps.bench import waits
from clustercaps.bench.cases import Case, Options
from clustercaps.bench.versions import running
from clustercaps.utils.waits import SETTINGS, SPINS


def test_run_writes_a_line_alone_and_a_line_beside_a_busy_program(tmp_path: Path) -> None:
    out = tmp_path / "waits.csv"
    waits.run(Options(out, ("m1",), size=8, batch=2, rounds=2, seconds=0.001, quick=True))
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["busy_programs"] for row in rows] == ["0", "1"]
    for row in rows:
        low, middle, high = (float(row[f"times_long{end}"]) for end in ("_low", "", "_high"))
        assert 0 < low <= middle <= high
        assert min(float(row["long_ms"]), float(row["short_ms"])) > 0


def test_busy_programs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remembered(command: list[str]) -> "subprocess.Popen[bytes]":
        started.append(popen(command))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remembered)
    with waits.busy(2):
        assert [process.poll() for process in started] == [None, None]
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_either_kind_of_wait_has_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    seen = []

    def remembered(folder: Path, case: Case, threads: int, environment: dict[str, str]) -> Any:
        seen.append({name: environment.get(name) for name in SETTINGS})
        return running(folder, case, threads, environment)

    monkeypatch.setattr(waits, "running", remembered)
    monkeypatch.setattr(waits, "BUSY_PROGRAMS", (0,))
    waits.run(Options(tmp_path / "waits.csv", ("m1",), size=8, batch=2, rounds=1, seconds=0.001))
    assert seen == [
        {"GOMP_SPINCOUNT": None, "OMP_WAIT_POLICY": None},
        {"GOMP_SPINCOUNT": str(SPINS), "OMP_WAIT_POLICY": None},
    ]
    assert os.environ["GOMP_SPINCOUNT"] == "5"
