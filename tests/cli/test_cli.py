import subprocess
import sys
from pathlib import Path

import pytest

from clustercaps.cli import main


def test_models_prints_counts_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    for expected in ("154,378 (154K)", "667,658 (686K+)", "150,058", "28,893,608", "C4 K8 D4"):
        assert expected in out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from clustercaps.cli import build_parser; build_parser().format_help(); "
        "print([m for m in ('torch', 'numpy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert main(["train", "m1", "--data", "fashion-mnist", "--out", str(blocked)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("clustercaps: error: ")
    assert err.count("\n") == 1


def test_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["modles"])
    assert stop.value.code == 2
    assert "models" in capsys.readouterr().err
