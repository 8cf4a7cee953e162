"""Files are written whole or not at all; caches have one root."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clustercaps.utils import files


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.txt"
    files.write_atomically(path, "old\n")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomically(path, "new\n")
    assert path.read_text() == "old\n"
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]


def test_several_files_appear_together(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        files.write_together({tmp_path / "a": b"1", tmp_path / "missing" / "b": b"2"})
    assert list(tmp_path.iterdir()) == []
    files.write_together({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert (tmp_path / "b").read_bytes() == b"2"


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    for name in (".a.json.1f2e3d4c.unfinished", ".a.json.unfinished"):
        (tmp_path / name).touch()
    (tmp_path / "a.json").touch()
    files.remove_unfinished(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_lock_is_exclusive_and_names_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with files.take_lock(path):
        code = (
            "import sys; from pathlib import Path; from clustercaps.utils.files import take_lock\n"
            "try: take_lock(Path(sys.argv[1]), wait=False)\n"
            "except BlockingIOError as error: print(error.filename)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str(os.getpid())
    files.take_lock(path, wait=False).close()


def test_one_root_for_all_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("HOME", "DATA", "CACHE"):
        monkeypatch.delenv(f"CLUSTERCAPS_{name}", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/h")
    assert files.data_folder() == Path("/h/.cache/clustercaps/data")
    assert files.kernel_folder() == Path("/h/.cache/clustercaps/kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert files.data_folder() == Path("/x/clustercaps/data")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert files.home() == Path("/h/Library/Caches/clustercaps")
    monkeypatch.setenv("CLUSTERCAPS_HOME", "/c")
    assert files.data_folder() == Path("/c/data")
    assert files.kernel_folder() == Path("/c/kernels")


def test_the_older_variables_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERCAPS_HOME", "/c")
    monkeypatch.setenv("CLUSTERCAPS_DATA", "/d")
    monkeypatch.setenv("CLUSTERCAPS_CACHE", "/k")
    assert files.data_folder() == Path("/d")
    assert files.kernel_folder() == Path("/k/kernels")
