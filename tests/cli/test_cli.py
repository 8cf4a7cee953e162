import subprocess
import sys
from pathlib import Path

import pytest

from clustercaps.cli import COMMANDS, main


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


def test_no_command_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert all(f"\n    {name}" in out for name in COMMANDS)
    assert "clustercaps demo" in out
    assert err == ""


def test_outputs_that_are_no_files_are_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for command in (
        ["evaluate", "m1:fashion-mnist", "--figure"],
        ["compare", "nothing", "--figure"],
        ["data", "show", "fashion-mnist-mini", "--out"],
        ["report", "--results", str(tmp_path), "--page"],
        ["bench", "--quick", "--out"],
    ):
        for path, kind in [("/dev/null", "a device"), (tmp_path, "a folder")]:
            assert main([*command, str(path)]) == 2
            err = capsys.readouterr().err
            assert f"cannot write {path}: it is {kind}" in err
            assert err.count("\n") == 1
        assert main([*command, str(tmp_path / "file" / "x.png")]) == 2
        assert "is a file, not a folder" in capsys.readouterr().err
    assert Path("/dev/null").is_char_device()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("routing=3", "routing must be text, got 3"),
        ("votes=[1]", "votes must be an integer up to 1,000,000, got [1]"),
        ("votes=true", "votes must be an integer"),
        ("votes=99999999999", "votes must be an integer up to 1,000,000"),
        ("dim=null", "dim must be an integer"),
    ],
)
def test_settings_of_another_type_leave_nothing(
    value: str, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", "m1", "--set", value, "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert f"model 'm1': {words}" in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_unexpected_errors_are_one_line_that_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from clustercaps.data import inspection

    def fail(error: Exception) -> int:
        def raising() -> str:
            raise error

        monkeypatch.setattr(inspection, "list_sets", raising)
        return main(["data", "list"])

    monkeypatch.delenv("CLUSTERCAPS_TRACEBACK", raising=False)
    for error in (
        RuntimeError("a\nb"),
        TypeError(),
        RecursionError("deep"),
        EOFError(),
        KeyError("k"),
    ):
        assert fail(error) == 1
        err = capsys.readouterr().err
        assert f"clustercaps: unexpected error: {type(error).__name__}: " in err
        assert "(test_cli.py, line " in err
        assert "CLUSTERCAPS_TRACEBACK=1" in err
        assert err.count("\n") == 1
    full = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    for clean in (KeyError("unknown model 'x'"), ValueError("no"), MemoryError(), full):
        assert fail(clean) == 2
        assert capsys.readouterr().err.startswith("clustercaps: error: ")
    monkeypatch.setenv("CLUSTERCAPS_TRACEBACK", "1")
    with pytest.raises(EOFError):
        fail(EOFError())
