"""Downloads from the official URLs, with pooch."""

import tarfile
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from clustercaps.data.errors import DataError, need
from clustercaps.data.files import unpack
from clustercaps.data.published import Archive, File, Published
from clustercaps.utils.progress import progress

# Timeouts in seconds to connect and between chunks: short, for machines without network.
TIMEOUT = (4, 30)
CHUNK = 1 << 20


def official_files(published: Published, wanted: list[File]) -> dict[str, bytes]:
    """Download files, each from the first official URL that has it.

    Args:
        published: the dataset.
        wanted: files to download.

    Returns:
        Content by cache name, verified against the checksum of the download.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = published.archive
        if archive:
            path = _download(published, archive.name, archive.digest, archive.size, folder)
            return archive_members(path, archive, wanted)
        contents = {}
        for file in wanted:
            address = file.download or file.name
            digest = file.download_digest or file.digest
            assert digest is not None, f"{file.name} has no official URL"
            path = _download(published, address, digest, file.size, folder)
            blob = path.read_bytes()
            # A file that is stored under another name than it is served is stored decompressed.
            contents[file.name] = unpack(blob, path) if file.download else blob
        return contents


def archive_members(path: Path, archive: Archive, files: list[File]) -> dict[str, bytes]:
    """Read files from a tar archive, without writing them to disk."""
    contents = {}
    try:
        with tarfile.open(path) as tar, progress(f"{path.name}: unpacking", len(files)) as bar:
            for file in files:
                stream = tar.extractfile(f"{archive.folder}/{file.name}")
                if stream is None:
                    raise KeyError(f"{file.name} is not a file")
                contents[file.name] = stream.read()
                bar.update(1)
    except (tarfile.TarError, KeyError, OSError, EOFError) as error:
        raise DataError(f"{path}: corrupt archive ({error}); download it again") from error
    return contents


def _download(published: Published, name: str, digest: str, size: int, folder: Path) -> Path:
    pooch = need("pooch", "download datasets")
    pooch.get_logger().setLevel("ERROR")
    failures = []
    for address in published.addresses:
        with progress(name, size) as bar:
            # Some servers would compress or decompress, which changes the checksum.
            downloader = pooch.HTTPDownloader(
                bar, CHUNK, timeout=TIMEOUT, headers={"Accept-Encoding": "identity"}
            )
            try:
                path = pooch.retrieve(address + name, digest, name, folder, downloader=downloader)
                return Path(path)
            except (OSError, ValueError) as error:
                failures.append(f"{urlsplit(address).hostname}: {_why(error)}")
    raise DataError("; ".join(failures))


def _why(error: Exception) -> str:
    """A short reason for an error of requests or pooch."""
    import requests

    if isinstance(error, requests.Timeout):
        return "no answer"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    if isinstance(error, ValueError) and "hash" in str(error).lower():
        return "not the published file"
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
