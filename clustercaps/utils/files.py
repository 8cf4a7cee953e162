"""Atomic writes, JSON objects, file locks and cache folders.

Imports nothing heavy: a CSV can be read and written without torch.
"""

import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from clustercaps.utils.paths import output_path

UNFINISHED = ".unfinished"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that replaces `path`, durably, once it is written.

    If writing fails, nothing is left behind and a previous file is unchanged. Only a regular file
    is replaced, also if a link leads to it; folders, devices and pipes are refused.
    """
    path = output_path(path)
    part = _temporary(path)
    try:
        yield part
        _sync(part)
        os.replace(part, path)
        _sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file atomically: readers see the old or the new file, never a part of it."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write several files atomically; none appears if one of them cannot be written."""
    targets = {output_path(path): blob for path, blob in contents.items()}
    parts = {_temporary(path): path for path in targets}
    try:
        for part, path in parts.items():
            part.write_bytes(targets[path])
            _sync(part)
        for part, path in parts.items():
            os.replace(part, path)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Delete temporary files that killed writers left in a folder."""
    for part in folder.glob(f".*{UNFINISHED}"):
        part.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    # Not tempfile: its files are private to the user, and a cache may be shared.
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")


def _sync(path: Path) -> None:
    """Make a file, or the renames in a folder, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is corrupt: expected a JSON object, got {type(content).__name__}")
    return content


def take_lock(path: Path, wait: bool = True) -> TextIO:
    """An exclusive lock that is held until the file is closed or the process ends.

    Args:
        path: Path of a file used only as a lock; created if missing.
        wait: Whether to wait for another process to release it; if False, raises
            `BlockingIOError`, whose `filename` is the id of that process.
    """
    try:
        import fcntl
    except ImportError as error:
        raise OSError(f"cannot lock {path}: locks need a Unix system") from error
    lock = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        lock.seek(0)
        owner = lock.read().strip()
        lock.close()
        raise BlockingIOError(error.errno, error.strerror, owner) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def home() -> Path:
    """Root of all caches: $CLUSTERCAPS_HOME, or `clustercaps` in the user's cache folder."""
    chosen = os.environ.get("CLUSTERCAPS_HOME")
    if chosen:
        return Path(chosen).expanduser()
    # The rules of platformdirs.
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
        return Path(base).expanduser() / "clustercaps" / "Cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/clustercaps").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "clustercaps"


def data_folder() -> Path:
    """Folder of downloaded datasets: `data` in the root, or $CLUSTERCAPS_DATA."""
    chosen = os.environ.get("CLUSTERCAPS_DATA")
    return Path(chosen).expanduser() if chosen else home() / "data"


def kernel_folder() -> Path:
    """Folder of built kernels: `kernels` in the root, or in $CLUSTERCAPS_CACHE."""
    chosen = os.environ.get("CLUSTERCAPS_CACHE")
    return (Path(chosen).expanduser() if chosen else home()) / "kernels"
