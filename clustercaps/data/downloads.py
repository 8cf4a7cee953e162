"""Downloads from the official URLs, bounded in size and time."""

import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from clustercaps.data.archives import tar_members
from clustercaps.data.errors import DataError, need
from clustercaps.data.files import MOST_BYTES, check_digest, unpack
from clustercaps.data.published import Archive, File, Published
from clustercaps.utils.progress import progress

# Timeouts in seconds to connect and between chunks: short, for machines without network.
TIMEOUT = (4, 30)
# A whole download may take this long, and longer for large files: bytes per second.
SECONDS, SLOWEST = 120.0, 50_000
CHUNK = 1 << 16
# Sizes of compressed files are not published, but they are not larger than their content and this.
GZIP_HEADER = 1024


def official_files(published: Published, wanted: list[File]) -> dict[str, bytes]:
    """Download files, each from the first official URL that has it.

    Args:
        published: the dataset.
        wanted: files to download.

    Returns:
        Content by cache name, verified against the checksum of the download.
    """
    archive = published.archive
    if archive:
        blob = _download(published, archive.name, archive.digest, archive.size)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / archive.name
            path.write_bytes(blob)
            return archive_members(path, archive, wanted)
    contents = {}
    for file in wanted:
        address = file.download or file.name
        digest = file.download_digest or file.digest
        assert digest is not None, f"{file.name} has no official URL"
        blob = _download(published, address, digest, file.size + GZIP_HEADER)
        # A file that is stored under another name than it is served is stored decompressed.
        unpacked = unpack(blob, Path(address), file.size) if file.download else blob
        contents[file.name] = unpacked
    return contents


def archive_members(
    path: Path, archive: Archive, files: list[File], verify: bool = True
) -> dict[str, bytes]:
    """Read files from an official archive, without writing them to disk.

    Args:
        path: the archive.
        archive: what is published about it.
        files: the wanted files.
        verify: limit the archive to its published size; otherwise only to `MOST_BYTES`.
    """
    most = archive.unpacked if verify else MOST_BYTES
    members = tar_members(path, [f"{archive.folder}/{file.name}" for file in files], most)
    return {file.name: members[f"{archive.folder}/{file.name}"] for file in files}


def _download(published: Published, name: str, digest: str, most: int) -> bytes:
    """The bytes of a file with this checksum, at most so many, from the first URL that has it."""
    need("requests", "download datasets")
    failures = []
    for address in published.addresses:
        host = urlsplit(address).hostname
        try:
            blob = _within(SECONDS + most / SLOWEST, address + name, name, most)
            check_digest(blob, None, digest, name)
            return blob
        except DataError as error:
            wrong = "not the published file" in str(error)
            failures.append(f"{host}: {'not the published file' if wrong else error}")
    raise DataError("; ".join(failures))


def _within(seconds: float, address: str, name: str, most: int) -> bytes:
    """Download in a thread, which is given up after a time, whatever the server does."""
    end = time.monotonic() + seconds
    result: list[bytes | DataError] = []

    def work() -> None:
        try:
            result.append(_fetch(address, name, most, end))
        except DataError as error:
            result.append(error)

    # A daemon: one that waits for a silent server does not keep the program from ending.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not result:
        raise DataError(f"not finished after {seconds:.0f} s")
    if isinstance(result[0], DataError):
        raise result[0]
    return result[0]


def _fetch(address: str, name: str, most: int, end: float) -> bytes:
    import requests

    # Some servers would compress or decompress, which changes the checksum.
    headers = {"Accept-Encoding": "identity"}
    blob = bytearray()
    try:
        with (
            progress(name, most) as bar,
            requests.get(address, stream=True, timeout=TIMEOUT, headers=headers) as response,
        ):
            response.raise_for_status()
            for chunk in response.iter_content(CHUNK):
                blob += chunk
                bar.update(len(chunk))
                if len(blob) > most:
                    raise DataError(f"more than the published {most:,} bytes")
                if time.monotonic() > end:
                    raise DataError("too slow")
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(_why(error)) from error
    return bytes(blob)


def _why(error: Exception) -> str:
    """A short reason for an error of requests."""
    import requests

    if isinstance(error, requests.Timeout):
        return "no answer"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
