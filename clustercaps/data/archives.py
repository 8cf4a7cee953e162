"""Read files from tar and zip archives in memory: bounded, no links, nothing written to disk."""

import errno
import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from clustercaps.data.errors import DataError
from clustercaps.data.files import reason
from clustercaps.utils.paths import check_input
from clustercaps.utils.progress import progress

# What an archive may hold beside the wanted files: headers, padding, a readme.
BESIDE = 1 << 20
CHUNK = 1 << 20
# What the readers raise for damaged content; the last two are zipfile's for damaged flags: unknown
# compression, and encryption.
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    DataError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)


class _Bounded:
    """A stream that raises an error after so many bytes, so that no archive unpacks without end."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise DataError(f"it decompresses to more than the expected {self._most:,} bytes")
        return data


def tar_members(path: Path, wanted: Iterable[str], most: int) -> dict[str, bytes]:
    """Content of regular files in a .tar.gz, by their names in it.

    The archive is read to its end, where the checksum of all its content is.

    Args:
        path: the archive.
        wanted: names; each must be there once, and be a regular file.
        most: largest size of all files together.
    """
    names, contents = set(wanted), dict[str, bytes]()
    with (
        _reading(path),
        gzip.GzipFile(path) as unzipped,
        progress(f"{path.name}: unpacking", len(names), " files") as bar,
    ):
        stream = _Bounded(unzipped, most + BESIDE)
        # "r|" reads forwards only: links cannot lead to another member.
        with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as tar:
            for member in tar:
                if member.name not in names:
                    continue
                if member.name in contents or not member.isreg():
                    raise DataError(f"{member.name} is there twice, or is not a regular file")
                data = tar.extractfile(member)
                assert data is not None
                contents[member.name] = data.read()
                bar.update(1)
        while stream.read(CHUNK):
            pass
    _require(names, contents, path)
    return contents


def zip_members(path: Path, wanted: Iterable[str], most: int) -> dict[str, bytes]:
    """Content of files in a zip archive, by their names in it; arguments as for `tar_members`."""
    names, contents = set(wanted), dict[str, bytes]()
    with _reading(path), zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename in names]
        if sum(member.file_size for member in members) > most:
            raise DataError(f"it decompresses to more than the expected {most:,} bytes")
        for member in members:
            # zipfile stops at the stated size, and compares the checksum there.
            contents[member.filename] = archive.read(member)
    _require(names, contents, path)
    return contents


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise a `DataError` for a damaged archive, and another for one that cannot be read."""
    try:
        check_input(path)
        yield
    except (*DAMAGE, OSError) as error:
        # EINVAL: zipfile looks for content before the file's beginning, as damaged entries say.
        if isinstance(error, DAMAGE) or error.errno == errno.EINVAL:
            raise DataError(f"{path}: corrupt archive ({error}); download it again") from error
        raise DataError(f"{path}: cannot read file ({reason(error)})") from error


def _require(names: set[str], contents: Mapping[str, bytes], path: Path) -> None:
    missing = sorted(names - contents.keys())
    if missing:
        raise DataError(f"{path}: corrupt archive ({missing[0]} is missing); download it again")
