"""What may be read and what may be written over: regular files, and nothing else.

Opening a FIFO waits for a writer, a device may never end, and replacing a device by a file breaks
the machine for everybody.
"""

import os
import stat
from pathlib import Path

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(path: Path) -> str:
    """What is at a path, links followed: "a file", "a folder", "a device" ... or "" for nothing."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return "a file" if stat.S_ISREG(mode) else KINDS.get(stat.S_IFMT(mode), "not a regular file")


def check_input(path: Path) -> None:
    """Raise an error, before it is opened, for a path that is there but is no regular file."""
    kind = kind_of(path)
    if kind == "a folder":
        raise IsADirectoryError(21, "Is a directory", str(path))
    if kind not in ("", "a file"):
        raise OSError(f"{path} is {kind}, not a file; pass a regular file")


def output_path(path: Path) -> Path:
    """The file to write for an output path; raises an error unless that is a file or nothing.

    Links are followed, so that the link stays and the file it leads to is replaced. Folders that do
    not exist yet are fine: they can be created.
    """
    kind = kind_of(path)
    if kind not in ("", "a file"):
        raise OSError(f"cannot write {path}: it is {kind}; pass the path of a file")
    if path.is_symlink():
        if not kind:
            raise OSError(f"cannot write {path}: it is a link that leads to no file; remove it")
        path = path.resolve()
    parent = next(parent for parent in path.absolute().parents if kind_of(parent))
    if kind_of(parent) != "a folder":
        raise OSError(f"cannot write {path}: {parent} is {kind_of(parent)}, not a folder")
    if not os.access(parent, os.W_OK):
        raise OSError(f"cannot write {path}: no permission to write in {parent}")
    return path
