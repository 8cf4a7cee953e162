"""Bytes on disk: read with a reason when it fails, checked, written so that no half file stays."""

import gzip
import hashlib
import os
import secrets
import sys
import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from clustercaps.data.errors import DataError

Say = Callable[[str], None]
"""Where sentences for the user go."""

GZIP_MAGIC = b"\x1f\x8b"


def to_stderr(sentence: str) -> None:
    """Tell the user, without touching what the program prints as its result."""
    print(sentence, file=sys.stderr)


def reason(error: OSError) -> str:
    """Say why the system refused, without the path, which the caller names."""
    return (error.strerror or str(error)).lower()


def read_file(path: Path) -> bytes:
    """Read a whole file as it is."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({reason(error)})") from error


def unpack(blob: bytes, path: Path) -> bytes:
    """Return the content of a file: unzipped if it is a gzip file, else as it is.

    Args:
        blob: the bytes of the file.
        path: its name, for the message; a name ending in .gz must be a gzip file.
    """
    if blob[:64].lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise DataError(
            f"{path}: is a web page, not data: the download got an error page; "
            "delete it and download the file again"
        )
    if not blob.startswith(GZIP_MAGIC):
        if path.suffix == ".gz":
            raise DataError(
                f"{path}: is not a gzip file (starts with {blob[:4].hex() or 'nothing'}, "
                "expected 1f8b); delete it and download the file again"
            )
        return blob
    try:
        return gzip.decompress(blob)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: broken gzip file ({str(error).lower()}); delete it and download it again"
        ) from error


def read_content(path: Path | str) -> bytes:
    """Read a file, unzipped if it is a gzip file."""
    path = Path(path)
    return unpack(read_file(path), path)


def check_digest(blob: bytes, size: int, digest: str, path: Path | str) -> None:
    """Refuse bytes that are not the published ones.

    Args:
        blob: what was read.
        size: published number of bytes.
        digest: published checksum, `md5:...` or `sha256:...`.
        path: where the bytes came from.
    """
    kind, expected = digest.split(":")
    got = hashlib.new(kind, blob, usedforsecurity=False).hexdigest()
    if len(blob) != size or got != expected:
        raise DataError(
            f"{path}: not the published file: expected {size:,} bytes with {kind} {expected}, "
            f"got {len(blob):,} bytes with {kind} {got}; delete it and fetch it again"
        )


def write_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write several files so that each appears whole, and none appears if one cannot be written.

    Args:
        folder: made if it does not exist.
        contents: file name -> bytes.
    """
    parts: dict[Path, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, blob in contents.items():
            # Not tempfile: its files are private to the user, and a cache may be shared.
            part = folder / f".{name}.{secrets.token_hex(4)}.part"
            parts[part] = folder / name
            with part.open("xb") as stream:
                stream.write(blob)
                stream.flush()
                os.fsync(stream.fileno())
        for part, final in parts.items():
            os.replace(part, final)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot write here ({reason(error)}); free some space, or choose another "
            "folder with the environment variable CLUSTERCAPS_DATA"
        ) from error
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


class NoBar:
    """Stands in for tqdm where it is not installed."""

    n = 0

    def __enter__(self) -> "NoBar":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, _: int) -> None:
        """Show nothing."""

    def reset(self) -> None:
        """Show nothing, from the start."""

    def close(self) -> None:
        """Stop showing nothing."""


def progress(description: str, total: int, unit: str = "B") -> Any:
    """Open a progress bar that stays away from work of less than two seconds."""
    try:
        tqdm = import_module("tqdm").tqdm
    except ImportError:
        return NoBar()
    return tqdm(
        desc=description,
        total=total,
        unit=unit,
        unit_scale=True,
        delay=2,
        leave=False,
        disable=None,
    )
