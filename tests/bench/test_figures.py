"""Figures of benchmarks are drawn from their CSV files, without measuring."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from clustercaps.bench.figures import figure_of
from clustercaps.cli import main

RESULTS = Path(__file__).parents[2] / "results"


def test_every_kind_of_file_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("bench-models.csv", "bench-scaling.csv", "peers-bench.csv")
    paths = [Path(shutil.copy(RESULTS / name, tmp_path)) for name in names]
    assert main(["bench", "--redraw", *map(str, paths)]) == 0
    assert capsys.readouterr().out.split() == [str(path.with_suffix(".png")) for path in paths]
    for path in paths:
        assert path.with_suffix(".png").stat().st_size > 5000
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_panels_show_the_values_of_the_file() -> None:
    layers = figure_of(RESULTS / "bench-layers.csv")
    assert [ax.get_title() for ax in layers.axes] == ["forward", "training step"]
    names = [tick.get_text() for tick in layers.axes[0].get_yticklabels()]
    assert names == [f"{model} layer {n}" for model in ("m1", "m3") for n in range(1, 6)]
    # The first series is plain PyTorch.
    series: Any = layers.axes[0].containers[0]
    assert series.lines[0].get_xdata()[0] == pytest.approx(263.17)
    scaling = figure_of(RESULTS / "bench-scaling.csv")
    assert [ax.get_title() for ax in scaling.axes][:2] == ["exponent 0.79", "exponent 1.65"]
    units = [ax.get_xlabel() for ax in scaling.axes]
    assert units[-2:] == ["image area (pixels)", "batch (images)"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("model,seconds,machine\nm1,3,here\n", "has no figure; expected a file of bench models"),
        ("", "has no figure"),
        ("grows,size,value,iqr,expected_exponent,machine\nbatch,x,1,1,1,here\n", "cannot be drawn"),
    ],
)
def test_other_files_are_refused_and_nothing_is_drawn(
    content: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Path(shutil.copy(RESULTS / "bench-scaling.csv", tmp_path))
    bad = tmp_path / "bad.csv"
    bad.write_text(content)
    assert main(["bench", "--redraw", str(good), str(bad)]) == 2
    assert reason in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "bench-scaling.csv"]


def test_flags_that_have_no_effect_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(RESULTS / "bench-scaling.csv")
    assert main(["bench", "--batch", "3", "--redraw", file]) == 2
    assert "--batch has no effect with --redraw" in capsys.readouterr().err
    assert main(["bench", "scaling", "--redraw", "nothing.csv"]) == 2
    assert "nothing.csv" in capsys.readouterr().err
