"""Hostile archives and servers: nothing unpacks or answers without end, nothing leads outside."""

import gzip
import io
import os
import shutil
import socket
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from clustercaps.data import DataError, downloads, registries
from clustercaps.data.archives import BESIDE, tar_members, zip_members
from clustercaps.data.files import read_content, unpack
from clustercaps.data.published import File, Published


def archive(path: Path, *members: tuple[str, bytes | str]) -> Path:
    """A .tar.gz of files (bytes) and links (text)."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


def test_members_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", ("../../evil", b"x"), ("in/a", b"1"), ("in/b", b"22"))
    before = sorted(tmp_path.rglob("*"))
    assert tar_members(path, ["in/a", "in/b"], 3) == {"in/a": b"1", "in/b": b"22"}
    assert sorted(tmp_path.rglob("*")) == before
    assert not (tmp_path.parent.parent / "evil").exists()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("in/a", "/etc/passwd")], "not a regular file"),
        ([("b", b"secret"), ("in/a", "../b")], "not a regular file"),
        ([("in/a", b"1"), ("in/a", b"2")], "twice"),
        ([("in/b", b"1")], "in/a is missing"),
        ([("in/a", bytes(3 * BESIDE))], "more than the expected"),
        ([("other", bytes(3 * BESIDE)), ("in/a", b"1")], "more than the expected"),
        ([("in/a", b"1"), ("other", bytes(3 * BESIDE))], "more than the expected"),
    ],
)
def test_hostile_archives_are_refused(tmp_path: Path, members: list, words: str) -> None:
    path = archive(tmp_path / "a.tar.gz", *members)
    with pytest.raises(DataError, match=rf"a\.tar\.gz: corrupt archive .*{words}") as caught:
        tar_members(path, ["in/a"], 100)
    assert "\n" not in str(caught.value)


def test_an_archive_is_read_to_its_checksum(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(5000)
    good = archive(tmp_path / "a.tar.gz", ("in/a", noise), ("in/b", noise)).read_bytes()
    for damaged in (good[:-5] + b"?" + good[-4:], good[:-4], good[: len(good) // 2], b"", b"x"):
        (tmp_path / "a.tar.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="corrupt archive"):
            tar_members(tmp_path / "a.tar.gz", ["in/a"], 20_000)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="named pipe"):
        tar_members(tmp_path / "pipe", ["in/a"], 1)


def test_zip_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("a", b"1" * 100)
        wheel.writestr("bomb", bytes(5_000_000))
    assert zip_members(path, ["a"], 100) == {"a": b"1" * 100}
    with pytest.raises(DataError, match="more than the expected 1,000 bytes"):
        zip_members(path, ["bomb"], 1000)
    with pytest.raises(DataError, match="b is missing"):
        zip_members(path, ["a", "b"], 1000)
    blob = path.read_bytes()
    path.write_bytes(blob.replace(b"1" * 1, b"2", 1)[:-10])
    with pytest.raises(DataError, match="corrupt archive"):
        zip_members(path, ["a"], 1000)
    # An offset beyond the end, so that the content would lie before the file's beginning.
    path.write_bytes(blob[:-6] + b"\0\0\x10\0" + blob[-2:])
    with pytest.raises(DataError, match="corrupt archive"):
        zip_members(path, ["a"], 1000)


@pytest.mark.parametrize("members_of", [tar_members, zip_members])
def test_an_archive_that_cannot_be_read_is_not_called_corrupt(
    tmp_path: Path, members_of: Callable[..., dict[str, bytes]]
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, why in [("missing", "no such file"), ("loop", "too many levels"), (".", "is a dir")]:
        with pytest.raises(DataError, match=rf"cannot read file \({why}[^;]*\)$"):
            members_of(tmp_path / name, ["a"], 1)


def test_gzip_bombs_are_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match=r"x\.gz: decompresses to more than the expected 1,000"):
        read_content(path, 1000)
    assert unpack(gzip.compress(bytes(1000)), path, 1000) == bytes(1000)


def test_links_in_a_debian_package_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpacked(command: list[str], folder: Path, *_: object) -> None:
        inside = folder / "files" / registries.DEBIAN_FOLDER
        if command[0] == "dpkg-deb":
            inside.mkdir(parents=True)
            for name in registries.IDX_NAMES:
                (inside / f"{name}.gz").symlink_to("/etc/passwd")
        else:
            (folder / "a.deb").touch()

    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(registries, "DEBIAN_FOLDER", Path("usr/share/not-installed-here"))
    monkeypatch.setattr(registries, "run", unpacked)
    with pytest.raises(DataError, match="contains links"):
        registries.fashion_mnist_from_debian()


def test_a_client_that_writes_nothing_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registries, "SILENT_SECONDS", 0.2)
    with pytest.raises(DataError, match=r"npm pack: wrote nothing for 0\.2 s, ended"):
        registries.run(["sleep", "60"], tmp_path, "npm pack", 5_000_000)
    assert capsys.readouterr().err == "npm pack: about 5 MB, for at most 900 s\n"


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers one connection as it likes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    answer(connection)
            except OSError:
                pass

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(bytes(100_000))


def trickle(connection: socket.socket) -> None:
    # One byte at a time, also of the header: no timeout between chunks ever ends this.
    while True:
        connection.sendall(b"H")
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "words"),
    [(endless, "more than the published"), (trickle, r"not finished after 1 s")],
)
def test_hostile_servers(
    answer: Callable[[socket.socket], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "SECONDS", 0.5)
    file = File("x", 10_000, "md5:00")
    with server(answer) as address, pytest.raises(DataError, match=words):
        downloads.official_files(Published((file,), (), ("",), (address,)), [file])
