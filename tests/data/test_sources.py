"""Which source is used, what reaches the cache, and what is said when nothing works."""

import dataclasses
import gzip
import hashlib
import io
import os
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from clustercaps.data import DataError, files, registries, sources
from clustercaps.data import downloads as official
from clustercaps.data.published import PUBLISHED, Archive, File, Published

CONTENT = {"a.bin": b"content of a", "b.bin": b"content of b", "c.bin": b"content of c"}


def digest(blob: bytes, kind: str = "md5") -> str:
    return f"{kind}:{hashlib.new(kind, blob).hexdigest()}"


def toy_files() -> dict[str, File]:
    return {name: File(name, len(blob), digest(blob)) for name, blob in CONTENT.items()}


@pytest.fixture
def toy(monkeypatch) -> Published:
    """A set of three files, two of them for training, with no route to get them."""
    a, b, c = toy_files().values()
    published = Published(train=(a, b), test=(c,), folders=("toy", ""), addresses=())
    monkeypatch.setitem(PUBLISHED, "toy", published)
    return published


def route(monkeypatch, get) -> None:
    monkeypatch.setitem(registries.REGISTRIES, "toy", ("a toy shop", get))


def tree(folder) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if not p.is_dir()}


def read(data_dir=None, split="train", said=None, **options):
    said = [] if said is None else said
    found, source = sources.obtain("toy", split, data_dir, True, said.append, **options)
    return [content.data for content in found], source


def put(folder, names=CONTENT):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(CONTENT[name])


def test_a_given_folder_comes_before_the_cache(toy, cache, tmp_path):
    put(cache / "toy")
    put(tmp_path / "mine")
    said: list[str] = []
    contents, source = read(tmp_path / "mine", said=said)
    assert contents == [CONTENT["a.bin"], CONTENT["b.bin"]]
    assert source == str(tmp_path / "mine")
    assert said == [f"toy: reading train images from {tmp_path / 'mine'}"]


def test_the_cache_comes_before_any_route(toy, cache, monkeypatch):
    put(cache / "toy")
    route(monkeypatch, lambda: pytest.fail("asked the shop"))
    said: list[str] = []
    _, source = read(said=said)
    assert source == str(cache / "toy")
    assert said == [f"toy: reading train images from the cache, {cache / 'toy'}"]


def test_a_folder_without_the_files_is_passed_over_and_said(toy, cache, tmp_path):
    put(cache / "toy")
    said: list[str] = []
    _, source = read(tmp_path, said=said)
    assert source == str(cache / "toy")
    assert said[0] == f"toy: none of its train files in {tmp_path}"


def test_official_addresses_come_before_registries(toy, monkeypatch):
    route(monkeypatch, lambda: pytest.fail("asked the shop"))
    monkeypatch.setattr(sources, "official_files", lambda *_: CONTENT)
    contents, _ = read(split="test")
    assert contents == [CONTENT["c.bin"]]


def test_a_registry_fills_the_cache_with_both_splits(toy, cache, monkeypatch):
    route(monkeypatch, lambda: {**CONTENT, "readme": b"not wanted"})
    said: list[str] = []
    read(said=said)
    assert tree(cache) == {f"toy/{name}": blob for name, blob in CONTENT.items()}
    assert f"toy: downloaded from a toy shop, verified, cached in {cache / 'toy'}" in said
    route(monkeypatch, lambda: pytest.fail("asked again"))
    assert read(split="test")[0] == [CONTENT["c.bin"]]


def test_only_missing_files_are_fetched(toy, cache, monkeypatch):
    put(cache / "toy", ["a.bin"])
    before = os.stat(cache / "toy" / "a.bin")
    route(monkeypatch, lambda: CONTENT)
    read()
    after = os.stat(cache / "toy" / "a.bin")
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert len(tree(cache)) == 3


@pytest.mark.parametrize(
    ("delivered", "words"),
    [
        ({**CONTENT, "c.bin": b"tampered with"}, "c.bin: not the published file"),
        ({**CONTENT, "c.bin": CONTENT["c.bin"][:-1] + b"?"}, "c.bin: not the published file"),
        ({"a.bin": CONTENT["a.bin"]}, "b.bin is not in it"),
    ],
)
def test_nothing_unverified_reaches_the_cache(toy, cache, monkeypatch, delivered, words):
    route(monkeypatch, lambda: delivered)
    with pytest.raises(DataError, match=words):
        read()
    assert not cache.exists()


def test_a_damaged_cache_is_an_error_and_is_left_alone(toy, cache, monkeypatch):
    put(cache / "toy")
    (cache / "toy" / "b.bin").write_bytes(b"content of ?")
    before = tree(cache)
    route(monkeypatch, lambda: CONTENT)
    with pytest.raises(DataError) as caught:
        read()
    message = str(caught.value)
    assert message.startswith(f"{cache / 'toy' / 'b.bin'}: not the published file")
    assert digest(CONTENT["b.bin"])[4:] in message
    assert digest(b"content of ?")[4:] in message
    assert "delete it" in message
    assert "\n" not in message
    assert tree(cache) == before


def test_a_full_disk_leaves_nothing_behind(toy, cache, monkeypatch):
    put(cache / "toy", ["a.bin"])
    route(monkeypatch, lambda: CONTENT)
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"no space left on device.*CLUSTERCAPS_DATA"):
        read()
    assert tree(cache) == {"toy/a.bin": CONTENT["a.bin"]}


def test_files_appear_whole_or_not_at_all(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"old")
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append((tmp_path / "x").read_bytes()))
    with (tmp_path / "x").open("rb") as reader:
        files.write_all(tmp_path, {"x": b"new"})
        # Replaced, not overwritten: who reads the old file goes on reading it.
        assert reader.read() == b"old"
    assert seen == [b"old"]
    assert tree(tmp_path) == {"x": b"new"}


def test_one_message_when_nothing_works(toy, cache, monkeypatch, tmp_path):
    def closed():
        raise DataError("closed on Sundays")

    route(monkeypatch, closed)
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == "toy: not found, and it could not be downloaded. Tried:"
    assert f"  {tmp_path}: contains none of the files" in lines
    assert f"  cache {cache / 'toy'}: missing" in lines
    assert "  a toy shop: closed on Sundays" in lines
    assert lines[-3:] == ["  a.bin", "  b.bin", "  c.bin"]
    assert str(cache / "toy") in lines[-4]


def test_without_fetching_nothing_is_tried(toy, monkeypatch):
    route(monkeypatch, lambda: pytest.fail("asked the shop"))
    with pytest.raises(DataError, match=r"toy: not found .*data get toy"):
        read(fetch=False)


def test_unusable_folders(toy, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for name, words in (("nothing", "no such file"), ("file", "not a directory")):
        with pytest.raises(DataError, match=f"{name}: cannot read the data folder .*{words}"):
            read(tmp_path / name)

    def forbidden(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", forbidden)
    with pytest.raises(DataError, match=r"cannot read the data folder .permission denied"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"toy: cannot read folder .permission denied"):
        read()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    """A web server on this machine: its folder and its address."""
    folder = tmp_path / "www"
    folder.mkdir()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{httpd.server_port}/"
    httpd.shutdown()
    httpd.server_close()


def zipped_file(name: str, content: bytes) -> tuple[File, bytes]:
    blob = gzip.compress(content)
    file = File(
        name,
        len(content),
        digest(content),
        download=f"{name}.gz",
        download_digest=digest(blob, "sha256"),
    )
    return file, blob


def test_the_second_address_is_asked_when_the_first_fails(server):
    folder, address = server
    file, blob = zipped_file("x", b"hello")
    (folder / "good").mkdir()
    (folder / "good" / "x.gz").write_bytes(blob)
    (folder / "error-page").mkdir()
    (folder / "error-page" / "x.gz").write_bytes(b"<html>moved</html>")
    addresses = tuple(f"{address}{sub}/" for sub in ("nothing", "error-page", "good"))
    published = Published((file,), (), ("",), addresses)
    assert official.official_files(published, [file]) == {"x": b"hello"}
    bad = dataclasses.replace(published, addresses=addresses[:2])
    with pytest.raises(DataError, match=r"HTTP status 404.*not the published"):
        official.official_files(bad, [file])


def test_no_connection_is_said_in_a_few_words():
    file, _ = zipped_file("x", b"hello")
    published = Published((file,), (), ("",), ("http://127.0.0.1:9/",))
    with pytest.raises(DataError, match=r"^127\.0\.0\.1: no connection$"):
        official.official_files(published, [file])


def test_official_archive(server):
    folder, address = server
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, blob in CONTENT.items():
            member = tarfile.TarInfo(f"inside/{name}")
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    blob = stream.getvalue()
    (folder / "all.tar.gz").write_bytes(blob)
    toys = list(toy_files().values())
    archive = Archive("all.tar.gz", len(blob), digest(blob, "sha256"), "inside", 36)
    published = Published(tuple(toys), (), ("",), (address,), archive)
    assert official.official_files(published, toys) == CONTENT
    lost = [*toys, File("d.bin", 1, digest(b"d"))]
    with pytest.raises(DataError, match="corrupt archive"):
        official.official_files(published, lost)
