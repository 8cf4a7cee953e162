"""Where files come from: a given folder, the cache, official addresses, package registries.

Whatever the source, content is verified before use, and nothing reaches the cache unverified. One
set comes from nowhere: it is rendered into the cache.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clustercaps.data.downloads import archive_members, official_files
from clustercaps.data.errors import DataError
from clustercaps.data.files import (
    GZIP_MAGIC,
    Say,
    check_digest,
    read_file,
    reason,
    unpack,
    write_all,
)
from clustercaps.data.published import RENDERED, Archive, File, Published, files_of
from clustercaps.data.registries import REGISTRIES
from clustercaps.data.rendering.norb_set import render_into
from clustercaps.utils.files import data_folder


@dataclass(frozen=True)
class Content:
    """What a file holds, unzipped, and its path for messages."""

    data: bytes
    path: Path


def obtain(
    name: str,
    split: str,
    data_dir: Path | str | None,
    verify: bool,
    say: Say,
    fetch: bool = True,
) -> tuple[list[Content], str]:
    """Return the files of one split, in their published order, and where they came from.

    Args:
        name: a set that has files.
        split: `train` or `test`.
        data_dir: folder to look in first.
        verify: compare with the published checksums.
        say: told which source is used.
        fetch: if neither folder nor cache has the files, get them.
    """
    published = files_of(name)
    files = published.split(split)
    tried = []
    if data_dir is not None:
        folder = Path(data_dir).expanduser()
        found = _in_data_dir(folder, published, files, verify, say)
        if found:
            source = str(found[0].path.parent)
            say(f"{name}: reading {split} images from {source}")
            return found, source
        tried.append(f"{folder}: holds none of the files")
        say(f"{name}: none of its {split} files in {folder}")
    cache = data_folder() / name
    if _missing(cache, files):
        tried.append(f"cache {cache}: not there")
        if not fetch:
            raise DataError(f"{name}: not found ({'; '.join(tried)}); get it first")
        fetch_set(name, say, tried)
    say(f"{name}: reading {split} images from the cache, {cache}")
    return [_read(path, file, verify, say) for file, path in _paths(cache, files)], str(cache)


def fetch_set(name: str, say: Say, tried: Iterable[str] = ()) -> None:
    """Bring every missing file of a set into the cache, from the first route that works.

    A rendered set is rendered instead, each split that lacks a file.

    Args:
        name: a set that has files.
        say: told what is tried and what failed.
        tried: what was tried before, for the message if every route fails.
    """
    published, cache = files_of(name), data_folder() / name
    missing = _missing(cache, published.files)
    failures = list(tried)
    if not missing:
        return
    if name in RENDERED:
        for split in ("train", "test"):
            files = published.split(split)
            if _missing(cache, files):
                render_into(cache, split, [file.name for file in files], say)
        return
    for where, get in _routes(name, published, missing):
        say(f"{name}: trying {where}")
        try:
            contents = get()
            for file in missing:
                if file.name not in contents:
                    raise DataError(f"{file.name} is not in it")
                _verify(contents[file.name], file, file.name)
        # OSError: no room for temporary files, say; the next route may need less.
        except (DataError, OSError) as error:
            failures.append(f"{where}: {error}")
            say(f"{name}: {where}: {error}")
            continue
        write_all(cache, {file.name: contents[file.name] for file in missing})
        say(f"{name}: fetched from {where}, verified, kept in {cache}")
        return
    raise DataError(_nothing_worked(name, published, missing, cache, failures))


def cached(name: str) -> bool:
    """Whether every file of a set lies in the cache (unverified)."""
    try:
        return not _missing(data_folder() / name, files_of(name).files)
    except DataError:
        return False


def _routes(
    name: str, published: Published, missing: list[File]
) -> Iterator[tuple[str, Callable[[], dict[str, bytes]]]]:
    yield "official addresses", lambda: official_files(published, missing)
    if name in REGISTRIES:
        yield REGISTRIES[name]


def _nothing_worked(
    name: str, published: Published, missing: list[File], cache: Path, failures: list[str]
) -> str:
    lines = [f"{name}: not found, and it could not be fetched. Tried:"]
    lines += [f"  {failure}" for failure in failures]
    lines.append(f"Put these files into {cache}, or into any folder given as the data folder:")
    lines += [f"  {file.download or file.name}" for file in missing]
    if published.archive:
        lines.append(f"  (or {published.archive.name} into the data folder)")
    return "\n".join(lines)


def _listing(folder: Path) -> set[str]:
    """Names in a folder; none if there is no such folder."""
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({reason(error)})") from error


def _paths(folder: Path, files: Iterable[File]) -> list[tuple[File, Path]]:
    """Pair each file that lies in a folder with its path there."""
    present = _listing(folder)
    found = ((f, next((n for n in f.names if n in present), None)) for f in files)
    return [(file, folder / name) for file, name in found if name]


def _missing(folder: Path, files: Iterable[File]) -> list[File]:
    files = list(files)
    found = [file for file, _ in _paths(folder, files)]
    return [file for file in files if file not in found]


def _in_data_dir(
    root: Path, published: Published, files: tuple[File, ...], verify: bool, say: Say
) -> list[Content]:
    """Read the files from the first usual sub-folder that has them; empty if none has."""
    try:
        os.listdir(root)
    except OSError as error:
        raise DataError(f"{root}: the data folder cannot be read ({reason(error)})") from error
    folders = [root / sub for sub in published.folders]
    # The data folder may be the folder of one set, or the parent of several.
    for folder in folders:
        found = _paths(folder, files)
        if not found:
            continue
        lacking = ", ".join(f.name for f in files if f not in [file for file, _ in found])
        if lacking:
            raise DataError(f"{folder}: incomplete: {lacking} missing beside {found[0][1].name}")
        return [_read(path, file, verify, say) for file, path in found]
    archive = published.archive
    if archive:
        for folder in folders:
            if archive.name in _listing(folder):
                return _from_archive(folder / archive.name, archive, files, verify)
    return []


def _read(path: Path, file: File, verify: bool, say: Say) -> Content:
    blob = read_file(path)
    content = unpack(blob, path)
    if verify and file.unpacked is None:
        _verify(content, file, path)
    elif verify and blob.startswith(GZIP_MAGIC):
        _verify(blob, file, path)
    elif verify:
        say(f"{path.name}: a checksum is published for the .gz only; shape and counts are checked")
    return Content(content, path)


def _verify(blob: bytes, file: File, path: Path | str) -> None:
    if file.digest is not None:
        check_digest(blob, file.size, file.digest, path)
    elif len(blob) != file.size:
        raise DataError(
            f"{path}: {len(blob):,} bytes, expected {file.size:,}; delete it, and get the set again"
        )


def _from_archive(
    path: Path, archive: Archive, files: tuple[File, ...], verify: bool
) -> list[Content]:
    contents = archive_members(path, archive, list(files))
    if verify:
        for file in files:
            _verify(contents[file.name], file, path / file.name)
    return [Content(contents[file.name], path / file.name) for file in files]
