"""Atomic writes, file locks and cache folders.

Imports nothing heavy: a CSV can be read and written without torch.
"""

import errno
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

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
        with naming(path):
            yield part
            _sync(part)
            os.replace(part, path)
            _sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to errors of the operating system that name no file, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


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
    flags = os.O_RDONLY
    if sys.platform == "win32":
        # Folders cannot be opened there, and files must be open for writing.
        if path.is_dir():
            return
        flags = os.O_RDWR
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def take_lock(path: Path, wait: bool = True) -> TextIO:
    """An exclusive lock that is held until the file is closed or the process ends.

    Args:
        path: Path of a file used only as a lock; created if missing.
        wait: Whether to wait for another process to release it; if False, raises
            `BlockingIOError`, whose `filename` is the id of that process.
    """
    from filelock import lock_descriptor

    while True:
        lock = path.open("a+", encoding="utf-8")
        try:
            with naming(path):
                taken = lock_descriptor(lock.fileno(), blocking=wait)
            if not taken:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), _owner(lock))
        except BaseException:
            lock.close()
            raise
        if _is_at(lock, path):
            break
        # Its owner has deleted the file in the meantime: another process may lock a new one.
        lock.close()
    # The id is only for messages: a full disk does not matter.
    with suppress(OSError):
        # Not buffered, which would fail again when the file is closed.
        os.ftruncate(lock.fileno(), 0)
        os.write(lock.fileno(), f" {os.getpid()}".encode())
    return lock


def _owner(lock: TextIO) -> str:
    """The id of the process that holds a lock."""
    # Windows locks the first byte, also for readers: the id is after it.
    lock.seek(1)
    return lock.read().strip()


@contextmanager
def alone_in(folder: Path) -> Iterator[bool]:
    """Wait until no other process writes to a folder, and keep others waiting meanwhile.

    Yields False if folders have no such locks (Windows, some network file systems).
    """
    if sys.platform == "win32":
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield _lock_whole(descriptor)
    finally:
        os.close(descriptor)


def _lock_whole(descriptor: int) -> bool:
    from filelock import lock_descriptor

    try:
        return lock_descriptor(descriptor)
    except OSError:
        return False


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def home() -> Path:
    """Root of all caches: $CLUSTERCAPS_HOME, or `clustercaps` in the user's cache folder."""
    chosen = os.environ.get("CLUSTERCAPS_HOME")
    if chosen:
        return _expanded(chosen)
    # The rules of platformdirs.
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
        return _expanded(base) / "clustercaps" / "Cache"
    if sys.platform == "darwin":
        return _expanded("~/Library/Caches/clustercaps")
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "clustercaps"


def data_folder() -> Path:
    """Folder of downloaded datasets: `data` in the root, or $CLUSTERCAPS_DATA."""
    chosen = os.environ.get("CLUSTERCAPS_DATA")
    return _expanded(chosen) if chosen else home() / "data"


def kernel_folder() -> Path:
    """Folder of built kernels: `kernels` in the root, or in $CLUSTERCAPS_CACHE."""
    chosen = os.environ.get("CLUSTERCAPS_CACHE")
    return (_expanded(chosen) if chosen else home()) / "kernels"


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        # Neither $HOME nor an entry in the user database, as in some containers.
        raise OSError(
            f"cannot find the home folder for {path}; set CLUSTERCAPS_HOME to a folder of your own"
        ) from error
