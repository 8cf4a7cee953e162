"""Building on first use, and choosing a backend."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.layer_case import Case, gradients

from clustercaps import kernels
from clustercaps.kernels import build, cluster_cpu, library
from clustercaps.testing import assert_close

FORWARD = """
import torch, clustercaps as cc
layer = cc.ClusterCapsules2d(1, 1, 1, 2, votes=2{arguments})
print(layer(torch.ones(1, 1, 1, 4, 4)).sum().isfinite().item())
"""


def start(environment: dict[str, str], arguments: str = "") -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k != "CXX"} | environment
    return subprocess.Popen(
        [sys.executable, "-c", FORWARD.format(arguments=arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=300)
    return process.returncode, out, error


@pytest.mark.slow
def test_processes_that_start_at_once_share_one_build(tmp_path: Path) -> None:
    # A compiler that leaves a mark each time it compiles, and is slow enough to be waited for.
    compiler = tmp_path / "compiler"
    real = build.find_compiler()[0]
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || {{ echo x >> {tmp_path}/calls; sleep 1; }}\n'
        f'exec {real} "$@"\n'
    )
    compiler.chmod(0o755)
    environment = {"CXX": str(compiler), "CLUSTERCAPS_CACHE": str(tmp_path / "cache")}
    ended = [finish(p) for p in [start(environment) for _ in range(3)]]
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    assert (tmp_path / "calls").read_text() == "x\n"
    assert sum("building the CPU kernel" in error for _, _, error in ended) == 1
    left = sorted(path.suffix for path in (tmp_path / "cache" / "kernels").iterdir())
    assert left == [".lock", ".log", ".sha256", ".so"]


def test_no_compiler_warns_once_and_takes_the_reference(tmp_path: Path) -> None:
    environment = {"CXX": "/nonexistent/c++", "CLUSTERCAPS_CACHE": str(tmp_path)}
    code, out, error = finish(start(environment))
    assert (code, out) == (0, "True\n")
    assert error.count("instead of the fused CPU kernel") == 1
    assert "/nonexistent/c++" in error


def test_failed_build_names_its_log(tmp_path: Path) -> None:
    environment = {"CXX": "false-compiler", "CLUSTERCAPS_CACHE": str(tmp_path / "cache")}
    compiler = tmp_path / "false-compiler"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho nonsense; exit 3\n')
    compiler.chmod(0o755)
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    code, out, error = finish(start(environment))
    assert (code, out) == (0, "True\n")
    (log,) = (tmp_path / "cache").rglob("*.log")
    assert f"failed with code 3; see the log {log}" in error
    assert "nonsense" in log.read_text()


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_forcing_a_missing_backend_no_compiler(tmp_path: Path, by: str) -> None:
    environment = {"CXX": "/nonexistent/c++", "CLUSTERCAPS_CACHE": str(tmp_path)}
    if by == "variable":
        environment["CLUSTERCAPS_BACKEND"] = "cpu"
    code, _, error = finish(start(environment, ', backend="cpu"' if by == "argument" else ""))
    assert code != 0
    assert "RuntimeError: backend 'cpu' was requested but is not available" in error
    assert "/nonexistent/c++" in error


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLUSTERCAPS_BACKEND", raising=False)
    assert kernels.choose("auto", "cpu") == "cpu"
    assert kernels.choose("auto", "mps") == "chunked"
    assert kernels.choose("auto", "cpu", "some other routing") == "reference"
    assert kernels.choose("compiled", "cpu") == "compiled"
    monkeypatch.setenv("CLUSTERCAPS_BACKEND", "reference")
    assert kernels.choose("auto", "cpu") == "reference"
    assert kernels.choose("cpu", "cpu") == "cpu"
    with pytest.raises(RuntimeError, match="the capsules are on cuda"):
        kernels.choose("cpu", "cuda")
    with pytest.raises(KeyError, match="did you mean 'cpu'"):
        kernels.choose("cpus", "cpu")


def test_status_names_every_backend_and_the_one_in_use() -> None:
    table = kernels.status_table().splitlines()
    header, _, *lines, products = table
    assert header.startswith("backend")
    assert products.startswith("Products under bfloat16 autocast: ")
    assert [line.split()[0] for line in lines] == [*kernels.BACKENDS]
    used = [line.split()[0] for line in lines if line.split()[2] == "yes"]
    assert used == ["cpu"]


def test_key_follows_flags_and_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = build.library_path()
    assert build.library_path("x86-64-v3") != usual
    monkeypatch.setenv("CLUSTERCAPS_SANITIZE", "address")
    assert build.library_path() != usual
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    with pytest.raises(build.BuildError, match="does not exist"):
        build.library_path()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="an instruction set of x86-64")
def test_other_instruction_set_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    portable = library.Library(build.build("x86-64-v3"))
    monkeypatch.setattr(cluster_cpu, "load", lambda: portable)
    for votes in range(1, 10):
        for dtype, ratio in ((torch.float32, 3e-6), (torch.float64, 1e-12)):
            case = Case(batch=3, in_dim=5, height=19, width=13, votes=votes, out_dim=5)
            tensors = case.tensors(dtype)
            right = gradients(case.reference, [t.double() for t in tensors])
            for actual, expected in zip(gradients(case.fused, tensors), right, strict=True):
                assert_close(f"{votes} votes", actual, expected, ratio)
