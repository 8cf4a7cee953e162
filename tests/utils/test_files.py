"""Files are written whole or not at all; caches have one root."""

import os
import subprocess
import sys
import threading
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


def test_a_killed_owner_releases_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys, time, pathlib; from clustercaps.utils.files import take_lock\n"
        "lock = take_lock(pathlib.Path(sys.argv[1])); print('taken', flush=True); time.sleep(300)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "taken\n"
        with pytest.raises(BlockingIOError) as refused:
            files.take_lock(path, wait=False)
        assert refused.value.filename == str(owner.pid)
        owner.kill()
        owner.wait()
        files.take_lock(path, wait=False).close()


def test_a_lock_that_its_owner_deletes_is_not_taken(tmp_path: Path) -> None:
    """Whoever waited for a deleted file locks the new one."""
    path, taken = tmp_path / "lock", []
    first = files.take_lock(path)
    waiting = threading.Thread(target=lambda: taken.append(files.take_lock(path)))
    waiting.start()
    path.unlink()
    first.close()
    waiting.join()
    assert os.path.samestat(os.fstat(taken[0].fileno()), path.stat())
    taken[0].close()


def test_windows_opens_no_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, os.open refuses folders, and os.fsync files that are open for reading only."""
    real_open, real_sync, modes = os.open, os.fsync, {}

    def windows_open(path: Path, flags: int, *rest: int) -> int:
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        descriptor = real_open(path, flags, *rest)
        modes[descriptor] = flags
        return descriptor

    def windows_sync(descriptor: int) -> None:
        if modes[descriptor] & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(9, "Bad file descriptor")
        real_sync(descriptor)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "open", windows_open)
    monkeypatch.setattr(os, "fsync", windows_sync)
    files.write_atomically(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"
    with files.alone_in(tmp_path) as alone:
        assert not alone


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


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    (tmp_path / "device").symlink_to("/dev/null")
    for name, kind in [
        ("pipe", "a named pipe"),
        ("folder", "a folder"),
        ("device", "a device"),
        ("nowhere", "leads to no file"),
    ]:
        for write in (
            lambda path: files.write_atomically(path, "text"),
            lambda path: files.write_together({path.with_name("other"): b"", path: b"text"}),
        ):
            with pytest.raises(OSError, match=rf"cannot write .*{name}: it is .*{kind}"):
                write(tmp_path / name)
    with pytest.raises(OSError, match="symbolic links"):
        files.write_atomically(tmp_path / "round", "text")
    with pytest.raises(OSError, match="cannot write /dev/null: it is a device"):
        files.write_atomically(Path("/dev/null"), "text")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["pipe", "folder", "nowhere", "round", "device"]
    )


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    files.write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "new"
