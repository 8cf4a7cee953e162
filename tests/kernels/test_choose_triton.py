"""Choosing the Triton backend where it is missing; its own tests are in gpu/."""

import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest
import torch

from clustercaps import kernels
from clustercaps.kernels import availability


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLUSTERCAPS_BACKEND", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)


def install(monkeypatch: pytest.MonkeyPatch, package: bool, cuda: bool = False) -> None:
    spec = ModuleSpec("triton", None) if package else None
    monkeypatch.setattr(availability, "find_spec", lambda _: spec)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))


@pytest.mark.parametrize(
    ("package", "why"), [(False, "the package triton is missing"), (True, "no CUDA device")]
)
def test_missing(monkeypatch: pytest.MonkeyPatch, package: bool, why: str) -> None:
    install(monkeypatch, package)
    assert kernels.choose("auto", "cuda") == "chunked"
    state = kernels.available()["triton"]
    assert not state.usable
    assert why in state.why
    with pytest.raises(RuntimeError, match=why):
        kernels.choose("triton", "cuda")


def test_present(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, package=True, cuda=True)
    assert kernels.choose("triton", "cuda") == "triton"
    assert kernels.choose("triton", "cuda", "uniform") == "triton"
    assert kernels.choose("triton", "cuda", "some other routing") == "reference"
    assert kernels.choose("auto", "cuda") == "triton"
    for device in ("mps", "xpu"):
        assert kernels.choose("auto", device) == "chunked"
    assert kernels.choose("reference", "cuda") == "reference"
    with pytest.raises(RuntimeError, match="the capsules are on cpu"):
        kernels.choose("triton", "cpu")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert kernels.choose("auto", "cuda") == "chunked"
    with pytest.raises(RuntimeError, match="compute capability"):
        kernels.choose("triton", "cuda")


def test_interpreter_may_be_forced_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, package=True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert kernels.choose("triton", "cpu") == "triton"


def test_is_not_imported_before_it_is_used() -> None:
    code = "import sys, clustercaps.kernels; print([m for m in sys.modules if '_triton' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "clustercaps" not in done.stdout
