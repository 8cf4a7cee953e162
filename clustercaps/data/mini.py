"""The built-in subset of Fashion-MNIST: real images without a download.

The file is the xz-compressed concatenation of training pixels, training labels, test pixels and
test labels, one byte each. Classes alternate (0, 1, ..., 9, 0, ...), so every ten consecutive
images are balanced.
"""

import hashlib
import lzma
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustercaps.data.errors import DataError

MINI_FILE = Path(__file__).with_name("fashion_mnist_mini.xz")
MINI_SHA256 = "b8b5fe530de5b57c3d351fead86ea441dc663666d2523f502ffe084833f46dd2"
MINI_COUNTS = {"train": 10_000, "test": 2_000}
_PIXELS = 28 * 28


def read_mini(split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read pixels [N, 1, 28, 28] and labels [N] of one split."""
    try:
        payload = lzma.decompress(MINI_FILE.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise DataError(
            f"{MINI_FILE}: cannot read file ({error}); reinstall clustercaps"
        ) from error
    if hashlib.sha256(payload).hexdigest() != MINI_SHA256:
        raise DataError(f"{MINI_FILE}: wrong checksum for this version; reinstall clustercaps")
    train = MINI_COUNTS["train"]
    start = 0 if split == "train" else train * (_PIXELS + 1)
    count = MINI_COUNTS[split]
    pixels = np.frombuffer(payload, np.uint8, count * _PIXELS, start)
    labels = np.frombuffer(payload, np.uint8, count, start + count * _PIXELS)
    return pixels.reshape(count, 1, 28, 28), labels
