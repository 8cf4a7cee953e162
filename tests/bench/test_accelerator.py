"""Benchmarks on a GPU, tested on a machine without one: the device is a fake."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from clustercaps import kernels
from clustercaps.bench import accelerator, compare
from clustercaps.bench.cases import CPU, Case, Options, Workload, backends, build
from clustercaps.bench.check import ALLOWED, ALLOWED_ELSEWHERE, check
from clustercaps.bench.measure import take_turns
from clustercaps.cli import main
from clustercaps.utils.devices import accelerator_name
from clustercaps.utils.progress import StepBar

CUDA = torch.device("cuda")
CASE = Case("m1", 1, 8, 2)
MB = 10**6


class Allocator:
    """Counts as torch.cuda does: 5 MB are there before a step, 12 MB at its peak."""

    def __init__(self) -> None:
        self.reset = False

    def get_device_name(self, device: torch.device) -> str:
        return f"Imaginary GPU {device.index or 0}"

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        return 3 * 10**9, 8 * 10**9

    def reset_peak_memory_stats(self, device: torch.device) -> None:
        self.reset = True

    def memory_allocated(self, device: torch.device) -> int:
        return 5 * MB

    def max_memory_allocated(self, device: torch.device) -> int:
        return (12 if self.reset else 99) * MB


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """A GPU whose tensors are on the CPU; what is returned lists for which devices was waited."""
    calls: list[torch.device] = []
    memory = Allocator()

    def wait(device: torch.device | None = None) -> None:
        if device is not None:
            calls.append(device)

    monkeypatch.setattr(torch.accelerator, "synchronize", wait)
    monkeypatch.setattr(torch, "get_device_module", lambda device: memory)
    monkeypatch.setattr(Workload, "to", lambda self, device: self)
    return calls


def test_backends_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "choose", lambda name, device: f"{name}@{device}")
    asked = ["chunked@cuda", "compiled@cuda", "triton@cuda"]
    assert backends(True, CUDA) == (["reference", *asked], [])
    assert backends(False, CUDA)[0] == ["reference", "chunked@cuda", "triton@cuda"]


def test_triton_that_is_not_available_is_skipped_with_the_reason() -> None:
    names, notes = backends(False, torch.device("mps"))
    assert names == ["reference", "chunked"]
    assert notes[-1].startswith("triton: skipped, backend 'triton' was requested but is not avail")


@accelerator.full_precision()
def fail_in_full_precision() -> None:
    assert not torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"
    raise RuntimeError("in between")


def test_precision_is_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with pytest.raises(RuntimeError, match="in between"):
            fail_in_full_precision()
        assert torch.backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "high"
        assert "TF32 is allowed in convolutions and Triton, allowed in" in (
            accelerator.precision_note()
        )
    finally:
        torch.set_float32_matmul_precision(before)


def test_check_is_without_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    seen: list[bool] = []

    def note(*_: object) -> dict[str, float]:
        seen.append(torch.backends.cudnn.allow_tf32)
        return {}

    monkeypatch.setattr(compare, "check", note)
    with StepBar(1) as bar:
        compare.check_all([(CASE, "reference")], Options(Path("x"), device=CUDA), bar)
    assert seen == [False]
    assert torch.backends.cudnn.allow_tf32


def test_reference_of_another_device_is_checked_too(
    waited: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    factor = 1 + 1e-5

    def slightly_off(case: Case, backend: str, device: torch.device = CPU) -> Workload:
        work = build(case, backend)
        if device == CUDA:
            torch._foreach_mul_([p.data for p in work.module.parameters()], factor)
        return work

    monkeypatch.setattr("clustercaps.bench.check.build", slightly_off)
    assert ALLOWED < check(CASE, ["reference"], CUDA)["reference"] < ALLOWED_ELSEWHERE
    factor = 1 + 1e-3
    with pytest.raises(ValueError, match="reference does not match the reference on m1"):
        check(CASE, ["reference"], CUDA)


def test_clock_waits_for_the_device(waited: list[torch.device]) -> None:
    second = torch.device("cuda:1")
    with StepBar(1) as bar:
        take_turns({"a": lambda: None}, 1, 1e-6, bar, second)
    assert set(waited) == {second}
    waited.clear()
    with StepBar(1) as bar:
        take_turns({"a": lambda: None}, 1, 1e-6, bar)
    assert not waited


def test_memory_is_that_of_the_allocator(
    waited: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert accelerator.can_measure(CUDA)
    assert accelerator.peak_extra_mb(build(CASE, "reference"), CUDA) == 7
    assert waited == [CUDA, CUDA]
    assert accelerator.free_bytes(CUDA) == 3 * 10**9

    def refuse(device: torch.device) -> None:
        raise RuntimeError("this device has no such numbers")

    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace())
    monkeypatch.setattr(torch.accelerator, "reset_peak_memory_stats", refuse, raising=False)
    assert not accelerator.can_measure(CUDA)
    assert accelerator.free_bytes(CUDA) is None


def test_names(waited: list[torch.device], monkeypatch: pytest.MonkeyPatch) -> None:
    assert accelerator_name(torch.device("cpu")) == "none"
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    assert accelerator_name(torch.device("cuda:1")) == "Imaginary GPU 1, CUDA 12.6"
    assert accelerator_name(torch.device("mps")) == "Imaginary GPU 0"


def test_nothing_that_runs_is_an_error(waited: list[torch.device]) -> None:
    def fail(case: Case, name: str) -> Workload:
        raise TypeError("out\nof registers")

    with pytest.raises(ValueError, match="measured on cuda; reference on m1: skipped, TypeError: "):
        accelerator.those_that_run([(CASE, "reference")], fail, CUDA)


def test_end_to_end(
    waited: list[torch.device],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    usable = kernels.Availability(True, "")
    monkeypatch.setattr(kernels.availability, "triton_availability", lambda: usable)
    monkeypatch.setattr("clustercaps.utils.devices.pick_device", lambda name: torch.device(name))
    monkeypatch.setattr(compare, "matmul", lambda side, device: lambda: None)
    monkeypatch.chdir(tmp_path)
    sizes = ["--batch", "2", "--size", "8", "--models", "m1", "--rounds", "1", "--seconds", "1e-3"]
    assert main(["bench", "--device", "cuda", *sizes]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Imaginary GPU 0")
    # Its tensors are on the CPU, where the kernel does not run; the others are measured.
    assert "triton on m1: skipped, RuntimeError: backend 'triton' was requested" in said
    path = Path("results") / "bench-cuda.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert {row["backend"] for row in rows} == {"reference", "chunked"}
    assert {row["accelerator"] for row in rows} == {"Imaginary GPU 0"}
    memory = [row for row in rows if row["measure"] == "memory"]
    assert [row["value"] for row in memory] == ["7", "7"]
    assert said.splitlines()[-1].startswith(f"Please send {path} to")
    assert "`clustercaps kernels`" in said.splitlines()[-1]
    assert CUDA in waited


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cuda:77"], "device 'cuda:77' is not available; this machine"),
        (["layers", "--device", "nonsense"], "device 'nonsense' is not available; this machine"),
        (["scaling", "--device", "cpu"], "--device is not supported by bench scaling; remove it"),
        (["peers", "--device", "cuda"], "or run bench models or layers"),
    ],
)
def test_bad_devices_are_one_line_and_leave_nothing(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *arguments, "--quick"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert message in said.err
    assert not list(tmp_path.iterdir())


def test_cpu_by_name_is_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "layers", "--device", "cpu", "--quick"]) == 0
    assert "Please" not in capsys.readouterr().out
    rows = list(csv.DictReader(Path("results/bench-layers.csv").read_text().splitlines()))
    assert {row["accelerator"] for row in rows} == {"none"}
    usable = kernels.available()["cpu"].usable
    assert {row["backend"] for row in rows} == {"reference", "chunked", *["cpu"][:usable]}
