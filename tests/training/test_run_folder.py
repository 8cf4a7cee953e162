"""Who may use a run folder, and what is left if nobody does."""

import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clustercaps.training import RunFolder, TrainSettings, resolve, train
from clustercaps.training.run_folder import LOCK


def tiny() -> TrainSettings:
    return resolve("m1", "fashion-mnist-mini", "fast", limit=32, test_limit=20, epochs=1)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can have a single byte meanwhile.

    No fixture: pytest reports the result of a test before it ends its fixtures, maybe to a file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_at_the_start_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(OSError, match=r"new/run/settings.json"):
        train(tiny(), tmp_path / "new" / "run")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_with_a_lock_is_empty(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("12345")
    (tmp_path / ".settings.json.0a1b2c3d.unfinished").touch()
    folder = RunFolder(tmp_path)
    folder.open(tiny(), resume=False, overwrite=False)
    folder.begin(tiny(), overwrite=False)
    folder.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [LOCK, "settings.json"]


def test_one_of_many_simultaneous_starts_gets_the_folder(tmp_path: Path) -> None:
    out, told = tmp_path / "run", []
    barrier = threading.Barrier(8)

    def start() -> None:
        folder = RunFolder(out)
        barrier.wait()
        try:
            folder.open(tiny(), resume=False, overwrite=False)
        except ValueError as error:
            told.append(str(error))
        else:
            told.append("")
        barrier.wait()
        folder.close()

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told.count("") == 1
    assert all("in use by process" in text for text in told if text)
    # None of them began. The folder may be left if another than the one with the lock created it.
    assert not out.exists() or not list(out.iterdir())


def test_windows_deletes_no_open_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, unlink = RunFolder(tmp_path / "run"), Path.unlink

    def windows_unlink(path: Path, missing_ok: bool = False) -> None:
        if folder._lock is not None:
            raise PermissionError(13, "The file is in use", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(Path, "unlink", windows_unlink)
    folder.open(tiny(), resume=False, overwrite=False)
    folder.close()
    assert list(tmp_path.iterdir()) == []
