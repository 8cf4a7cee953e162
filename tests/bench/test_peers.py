import csv
import shutil
from pathlib import Path

import pytest

from clustercaps.bench.against import compare_versions, differences
from clustercaps.bench.cases import Case, Options
from clustercaps.bench.versions import PACKAGE, find_commit, running, unpacked
from clustercaps.cli import main
from clustercaps.utils.progress import StepBar


@pytest.mark.slow
def test_systems_stand_in_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "peers.csv"
    assert (
        main(["bench", "peers", "--quick", "--models", "m1,capsnet_svhn", "--out", str(out)]) == 0
    )
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["model"] for row in rows] == ["m1", "capsnet_svhn"]
    assert [row["parameters"] for row in rows] == ["145738", "994528"]
    for row in rows:
        for column in ("step_ms", "inference_ms", "one_image_ms", "memory_estimate_mb"):
            assert float(row[column]) > 0, column
    assert out.with_suffix(".png").exists()
    assert "capsnet_svhn" in capsys.readouterr().out


def test_unknown_systems_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "peers", "--models", "capsnets"]) != 0
    assert "did you mean 'capsnet'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_stored_file_is_compared_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, out = tmp_path / "peers.csv", tmp_path / "against.csv"
    quick = ["bench", "peers", "--quick", "--models", "capsnet_svhn"]
    assert main([*quick, "--out", str(stored)]) == 0
    before = next(csv.DictReader(stored.read_text().splitlines()))
    assert main([*quick, "--against", str(stored), "--out", str(out)]) == 0
    rows = {row["measure"]: row for row in csv.DictReader(out.read_text().splitlines())}
    step = rows["training step"]
    assert step["before"] == before["step_ms"]
    assert float(step["times_before"]) == pytest.approx(
        float(step["before"]) / float(step["after"]), rel=1e-3
    )
    assert "another run, peers.csv" in step["before_is"]
    assert "another run, peers.csv" in capsys.readouterr().out
    # Nothing is compared that is not the same, and nothing is overwritten.
    assert main([*quick, "--batch", "3", "--against", str(stored), "--out", str(out)]) == 2
    assert "images 2x1x32x32, not 3x1x32x32" in capsys.readouterr().err
    assert main([*quick, "--against", str(stored), "--out", str(stored)]) == 2
    assert "overwrite" in capsys.readouterr().err


@pytest.mark.slow
def test_a_version_that_computes_something_else_is_told_apart(tmp_path: Path) -> None:
    copy = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    squash = copy / "routing" / "squash.py"
    changed = squash.read_text().replace("norm / (1 + norm.square())", "norm / (1.01 + norm)")
    assert changed != squash.read_text()
    case = Case("capsnet_svhn", 1, 32, 2)
    options = Options(out=tmp_path / "out.csv", rounds=2, seconds=0.001)
    with running(PACKAGE.parent, case, 1) as old, running(tmp_path, case, 1) as new:
        assert [same.after[0] for same in differences(case, old, new)] == [0, 0]
    squash.write_text(changed)
    with StepBar(10) as bar:
        found = {c.measure: c for c in compare_versions(case, tmp_path, options, bar)}
    assert found["output"].after[0] > 1e-3
    assert found["gradient"].after[0] > 1e-3
    for measure in ("training step", "training step, CPU", "inference", "one image"):
        assert len(found[measure].ratios) == 2
        assert min(found[measure].ratios) > 0


def test_a_version_that_cannot_run_says_why(tmp_path: Path) -> None:
    cases = tmp_path / PACKAGE.name / "bench" / "cases.py"
    cases.parent.mkdir(parents=True)
    for folder in (cases.parent, cases.parent.parent):
        (folder / "__init__.py").touch()
    cases.write_text("raise RuntimeError('too old')")
    case = Case("capsnet_svhn", 1, 32, 2)
    with running(tmp_path, case, threads=1) as version, pytest.raises(OSError, match="too old"):
        version.ask("training step", seconds=0, warm_up=False)


def test_a_commit_is_found_and_unpacked() -> None:
    with pytest.raises(ValueError, match="'no-such-thing' is no file, and no commit"):
        find_commit("no-such-thing")
    try:
        commit = find_commit("HEAD")
    except ValueError:
        pytest.skip("not a clone")
    with unpacked(commit) as folder:
        assert (folder / PACKAGE.name / "bench" / "cases.py").is_file()
    assert not folder.exists()
