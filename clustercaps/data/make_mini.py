"""Rebuild the built-in subset from the full Fashion-MNIST: python -m clustercaps.data.make_mini.

Needs the full dataset (downloaded if it is not cached). The selection depends only on the indices
of the images, so every machine builds the same subset.
"""

import argparse
import hashlib
import lzma
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustercaps.data.datasets import load
from clustercaps.data.files import to_stderr, write_all
from clustercaps.data.images import Images
from clustercaps.data.mini import MINI_COUNTS, MINI_FILE, MINI_SHA256

CLASSES = 10
# Four bits of context suit bytes without alignment; filters that predict a pixel from its
# neighbours (up, Paeth, median) all gave larger files.
XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 4, "lp": 0, "pb": 0}]


def choose(labels: NDArray[np.int64], split: str, count: int) -> NDArray[np.int64]:
    """Select the same number of images of each class, in alternating order.

    Args:
        labels: class of every image of the full split.
        split: part of the hash, so that the splits are selected differently.
        count: total number of images.

    Returns:
        Image indices [count].
    """

    # A hash instead of a random generator: it never changes between versions.
    def rank(index: int) -> bytes:
        return hashlib.sha256(f"fashion-mnist-mini {split} {index}".encode()).digest()

    per_class = [
        sorted(np.flatnonzero(labels == label).tolist(), key=rank)[: count // CLASSES]
        for label in range(CLASSES)
    ]
    return np.array(per_class, dtype=np.int64).T.reshape(-1)


def payload(full: dict[str, Images]) -> bytes:
    """The selected images of both splits in the layout of the file, uncompressed."""
    parts = []
    for split, count in MINI_COUNTS.items():
        labels = full[split].labels.numpy()
        chosen = choose(labels, split, count)
        parts += [full[split].pixels.numpy()[chosen], labels[chosen].astype(np.uint8)]
    return b"".join(part.tobytes() for part in parts)


def main(arguments: list[str] | None = None) -> int:
    """Write the file and compare it with the checksum in the code."""
    parser = argparse.ArgumentParser(description="Rebuild the built-in Fashion-MNIST subset.")
    parser.add_argument("--data-dir", help="folder with the official Fashion-MNIST files")
    parser.add_argument("--out", type=Path, default=MINI_FILE, help="file to write")
    options = parser.parse_args(arguments)
    content = payload(
        {split: load("fashion-mnist", split, options.data_dir) for split in MINI_COUNTS}
    )
    digest = hashlib.sha256(content).hexdigest()
    packed = lzma.compress(content, filters=XZ)
    write_all(options.out.parent, {options.out.name: packed})
    to_stderr(f"{options.out}: {len(packed):,} bytes, sha256 of the content {digest}")
    if digest != MINI_SHA256:
        to_stderr(f"this differs from the subset of this version, {MINI_SHA256}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
