"""Read, verify and write files, with clear errors."""

import gzip
import hashlib
import sys
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

from clustercaps.data.errors import DataError
from clustercaps.utils.files import write_together
from clustercaps.utils.paths import check_input

Say = Callable[[str], None]
"""Called with messages for the user."""

GZIP_MAGIC = b"\x1f\x8b"
# Largest content of a file whose size is not published: your own files in an official format.
MOST_BYTES = 2**31


def to_stderr(sentence: str) -> None:
    """Print a message to stderr."""
    print(sentence, file=sys.stderr)


def reason(error: OSError) -> str:
    """The reason of an OS error, without the path, which the caller names."""
    return (error.strerror or str(error)).lower()


def read_file(path: Path) -> bytes:
    """Read a regular file; pipes and devices, which may never end, are refused."""
    try:
        check_input(path)
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read file ({reason(error)})") from error


def unpack(blob: bytes, path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a file, decompressed if it is a gzip file.

    Args:
        blob: the bytes of the file.
        path: its name, for error messages; a name ending in .gz must be a gzip file.
        most: largest size of the content; nothing beyond it is decompressed.
    """
    if blob[:64].lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise DataError(
            f"{path}: a web page, not data: the download returned an error page; "
            "delete it and download the file again"
        )
    if not blob.startswith(GZIP_MAGIC):
        if path.suffix == ".gz":
            raise DataError(
                f"{path}: not a gzip file (starts with {blob[:4].hex() or 'nothing'}, "
                "expected 1f8b); delete it and download the file again"
            )
        return blob
    try:
        with gzip.GzipFile(fileobj=BytesIO(blob)) as stream:
            content = stream.read(most)
            # Also at the end of the content: its checksum comes after it.
            if stream.read(1):
                raise DataError(f"{path}: decompresses to more than the expected {most:,} bytes")
            return content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: corrupt gzip file ({str(error).lower()}); delete it and download it again"
        ) from error


def read_content(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """Read a file, decompressed if it is a gzip file, of at most `most` bytes."""
    path = Path(path)
    return unpack(read_file(path), path, most)


def check_digest(blob: bytes, size: int | None, digest: str, path: Path | str) -> None:
    """Raise an error if the bytes are not the published ones.

    Args:
        blob: the bytes.
        size: published number of bytes, if it is known.
        digest: published checksum, `md5:...` or `sha256:...`.
        path: source of the bytes.
    """
    kind, expected = digest.split(":")
    got = hashlib.new(kind, blob, usedforsecurity=False).hexdigest()
    if size not in (None, len(blob)) or got != expected:
        stated = "" if size is None else f"{size:,} bytes with "
        raise DataError(
            f"{path}: not the published file: expected {stated}{kind} {expected}, "
            f"got {len(blob):,} bytes with {kind} {got}; delete it and download it again"
        )


def write_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write several files atomically; none appears if one of them cannot be written.

    Args:
        folder: created if it does not exist.
        contents: file name -> bytes.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_together({folder / name: blob for name, blob in contents.items()})
    except OSError as error:
        raise DataError(
            f"{folder}: cannot write to this folder ({reason(error)}); free disk space, or choose "
            "another folder with the environment variable CLUSTERCAPS_DATA"
        ) from error
