"""Small sets in the official formats."""

import gzip
from io import BytesIO

import numpy as np

from clustercaps.data import formats
from clustercaps.data.published import PUBLISHED

Contents = dict[str, bytes]


def idx_files(count: int, rng: np.random.Generator) -> Contents:
    files = {}
    for stem, n in (("train", count), ("t10k", count // 2)):
        pixels = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        files[f"{stem}-images-idx3-ubyte.gz"] = gzip.compress(formats.write_idx(pixels))
        labels = (np.arange(n) % 10).astype(np.uint8)
        files[f"{stem}-labels-idx1-ubyte.gz"] = gzip.compress(formats.write_idx(labels))
    return files


def cifar_files(count: int, rng: np.random.Generator) -> Contents:
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    labels = (np.arange(count) % 10).astype(np.uint8)
    return {
        name: formats.write_cifar(rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), labels)
        for name in names
    }


def svhn_file(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    from scipy.io import savemat

    stream = BytesIO()
    savemat(stream, {"X": pixels, "y": labels})
    return stream.getvalue()


def svhn_files(count: int, rng: np.random.Generator) -> Contents:
    return {
        f"{split}_32x32.mat": svhn_file(
            rng.integers(0, 256, (32, 32, 3, count), dtype=np.uint8),
            (np.arange(count) % 10 + 1).astype(np.uint8)[:, None],
        )
        for split in ("train", "test")
    }


def norb_files(count: int, rng: np.random.Generator) -> Contents:
    files = {}
    for published in (PUBLISHED["smallnorb"].train, PUBLISHED["smallnorb"].test):
        numbers = np.arange(count, dtype=np.int32)
        info = np.stack([numbers % 10, numbers % 9, numbers % 18 * 2, numbers % 6], axis=1)
        parts = (
            rng.integers(0, 256, (count, 2, 96, 96), dtype=np.uint8),
            numbers % 5,
            info.astype(np.int32),
        )
        for file, part in zip(published, parts, strict=True):
            files[file.name] = gzip.compress(formats.write_norb(part))
    return files


MAKERS = {
    "mnist": idx_files,
    "fashion-mnist": idx_files,
    "cifar10": cifar_files,
    "svhn": svhn_files,
    "smallnorb": norb_files,
}
