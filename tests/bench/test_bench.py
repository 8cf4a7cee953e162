import csv
from dataclasses import replace
from pathlib import Path

import pytest

from clustercaps import kernels
from clustercaps.bench.cases import Case, Options
from clustercaps.bench.compare import Comparison, Result, those_that_fit
from clustercaps.bench.comparison_report import COLUMNS, csv_rows, describe, ratio_rows
from clustercaps.bench.csv_output import write_csv
from clustercaps.bench.measure import take_turns
from clustercaps.bench.peak_memory import can_measure, peak_extra_mb
from clustercaps.cli import main
from clustercaps.utils.progress import StepBar

CASE = Case("m1", 1, 32, 64)
STEP = "training step"


def comparison() -> Comparison:
    results = [
        Result(CASE, "reference", STEP, 800.0, 8.0, 9, 5.0),
        Result(CASE, "cpu", STEP, 40.0, 1.0, 20, 10.0),
        Result(CASE, "official", STEP, 3200.0, 50.0, 5, 5.0),
        Result(CASE, "reference", "memory", 500.0),
        Result(CASE, "cpu", "memory", 25.0),
    ]
    return Comparison(results, {("m1", "cpu"): 1e-6}, 500.0, [])


def test_csv_has_a_row_per_cell_with_its_conditions(tmp_path: Path) -> None:
    out = tmp_path / "new" / "bench.csv"
    write_csv(out, COLUMNS, csv_rows(comparison()), {"machine": "a, b", "commit": "abc"})
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert list(rows[0]) == [*COLUMNS, "machine", "commit"]
    assert len(rows) == 5
    fast = rows[1]
    assert (fast["backend"], fast["measure"], fast["value"], fast["unit"]) == (
        *("cpu", STEP, "40", "ms"),
    )
    assert (fast["times_reference"], fast["times_official"]) == ("20", "80")
    # 10 GFLOP in 40 ms are 250 GFLOP/s, half of 500.
    assert (fast["gflop_per_s"], fast["fraction_of_mm"]) == ("250", "0.5")
    assert fast["relative_error"] == "1e-06"
    memory = rows[4]
    assert (memory["unit"], memory["times_reference"], memory["iqr"]) == ("MB", "20", "")
    assert [path.name for path in out.parent.iterdir()] == ["bench.csv"]


def test_ratios_of_what_was_measured() -> None:
    assert ratio_rows(comparison(), [STEP, "memory"]) == [
        ["m1", "cpu", "reference", "20.0", "20.0"],
        ["m1", "cpu", "official", "80.0", "-"],
    ]


def test_a_busy_machine_is_named() -> None:
    told = {"machine": "a", "torch": "b", "commit": "c"}
    calm = comparison()
    assert "BUSY" not in describe(calm, told)
    noisy = replace(calm, results=[*calm.results, Result(CASE, "cpu", "forward", 9.0, 5.0, 3, 1.0)])
    assert "BUSY MACHINE: in 1 of 4 cells" in describe(noisy, told)


def test_candidates_take_turns() -> None:
    calls: list[str] = []
    with StepBar(4) as bar:
        found = take_turns(
            {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2, 1e-5, bar
        )
    turns = [name for name, before in zip(calls, ["", *calls], strict=False) if name != before]
    assert turns == ["a", "b", "a", "b"]
    assert all(timing.measurements >= 2 for timing in found.values())


def test_what_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustercaps.bench.compare.free_bytes", lambda: 10**9)
    large = Case("m4", 3, 32, 64)
    kept, notes = those_that_fit([(large, "reference"), (large, "cpu"), (CASE, "cpu")])
    assert kept == [(large, "cpu"), (CASE, "cpu")]
    assert len(notes) == 1
    assert notes[0].startswith("reference on m4: skipped, stored votes need about")


def test_images_are_gray_for_m1_and_coloured_otherwise() -> None:
    options = Options(Path("x"))
    assert (options.case("m1").in_chans, options.case("m3").in_chans) == (1, 3)
    assert Options(Path("x"), in_chans=2).case("m1").input == "64x2x32x32"


@pytest.mark.skipif(not can_measure(), reason="no resettable high-water mark here")
def test_memory_holds_at_least_the_votes() -> None:
    # The votes of the first layer alone: 16 images x 1024 positions x 480 numbers of 4 bytes.
    assert peak_extra_mb(Case("m1", 1, 32, 16), "reference") > 31.4


def test_failed_measurement_of_memory_says_why() -> None:
    with pytest.raises(OSError, match=r"on nothing failed with code 1: KeyError.*unknown model"):
        peak_extra_mb(Case("nothing", 1, 8, 2), "reference")


@pytest.mark.slow
@pytest.mark.parametrize("word", [[], ["layers"], ["scaling"]])
def test_quick_end_to_end(
    word: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench.csv"
    assert main(["bench", *word, "--quick", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "m1" in said
    assert str(out) in said
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert {"machine", "torch", "commit", "value", "unit", "iqr"} <= set(rows[0])
    assert all(float(row["value"]) > 0 for row in rows if row["unit"] == "ms")
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "m9"], "unknown model 'm9'"),
        (["--models", "m1", "--all"], "exclude each other"),
        (["scaling", "--models", "m1,m2"], "takes one network"),
        (["--batch", "0"], "--batch must be an integer of at least 1"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_kernels_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("reference", "compiled", "cpu"))


def test_share_of_an_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "epoch.csv"
    assert main(["bench", "epoch", "--quick", "--batch", "32", "--out", str(out)]) == 0
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert (row["model"], row["data"], row["images"]) == ("m1", "fashion-mnist-mini", "64")
    parts = [float(row[f"{name}_percent"]) for name in ("kernel", "forward", "backward")]
    assert parts[0] == pytest.approx(parts[1] + parts[2], rel=1e-3)
    assert 0 < parts[1] < parts[2]
    assert "in the kernel" in capsys.readouterr().out


def test_share_of_an_epoch_needs_the_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels.availability, "cpu_loads", lambda warn: False)
    monkeypatch.setattr(kernels.availability, "load_failure", lambda: "no compiler was found")
    out = tmp_path / "epoch.csv"
    assert main(["bench", "epoch", "--quick", "--out", str(out)]) == 2
    assert "no compiler was found" in capsys.readouterr().err
    assert not out.exists()
