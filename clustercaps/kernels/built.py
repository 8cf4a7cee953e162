"""The folder of built kernels.

Python loads what is in it, and a damaged library ends the process without a message. So every
kernel has a checksum beside it, and nobody else may be able to write kernels or their folder.
"""

import hashlib
import os
import shutil
import sys
import time
from pathlib import Path

from clustercaps.utils.files import replacing, write_atomically

BUILDING = "building-"
# Longer than any build: what is older was left by a process that was killed.
OLD_SECONDS = 3600


def usable(library: Path) -> bool:
    """Whether there is a kernel that is exactly what was built.

    Raises:
        PermissionError: Another user could have written it.
    """
    if not library.exists():
        return False
    check_private(library.parent)
    check_private(library)
    try:
        wanted = _checksum_file(library).read_bytes().split()
        return wanted[:1] == [_checksum(library).encode()]
    except OSError:
        return False


def check_private(path: Path) -> None:
    """Raise an error if a file or folder belongs to another user, or if others can write it.

    Files of root are fine: a kernel may be built by an administrator or in a container image.
    """
    # Folders in a user's profile are private on Windows, and there are no user ids.
    if sys.platform == "win32":
        return
    status, user = path.stat(), os.geteuid()
    if status.st_uid not in (user, 0):
        raise PermissionError(
            f"{path} belongs to another user (id {status.st_uid}, you are {user}); set "
            "CLUSTERCAPS_CACHE to a folder of your own"
        )
    if status.st_mode & 0o022:
        raise PermissionError(
            f"other users can write {path}; run `chmod go-w {path}` if you trust what is in it, or "
            "set CLUSTERCAPS_CACHE to a folder of your own"
        )


def put(unfinished: Path, library: Path) -> None:
    """Move a built kernel to its place, durably, and write its checksum beside it."""
    # Whatever the umask: nobody else may write it.
    unfinished.chmod(0o755)
    with replacing(library) as part:
        os.replace(unfinished, part)
    write_atomically(_checksum_file(library), f"{_checksum(library)}  {library.name}\n")


def building_prefix(library: Path) -> str:
    """How the names of the folders begin in which a kernel is built."""
    return f"{BUILDING}{library.stem}-"


def remove_leftovers(library: Path) -> None:
    """Delete what killed builds left; call it with the lock of this kernel."""
    for folder in library.parent.glob(f"{BUILDING}*"):
        # Another kernel may be in its folder, with a lock of its own.
        own = folder.name.startswith(building_prefix(library))
        if own or time.time() - folder.stat().st_mtime > OLD_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _checksum_file(library: Path) -> Path:
    # In the format of sha256sum.
    return library.with_suffix(".sha256")


def _checksum(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()
