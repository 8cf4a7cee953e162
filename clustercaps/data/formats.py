"""Readers and writers of the official file formats, byte for byte.

Readers take bytes (already decompressed) and a name for error messages, and return numpy arrays
that are views of these bytes. Every error is one line that starts with the name.
"""

import struct
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustercaps.data.errors import DataError
from clustercaps.data.mat5 import read_arrays

Name = Path | str

# An IDX file starts with two zero bytes, a type code and the number of dimensions.
IDX_TYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
NORB_TYPES: dict[int, np.dtype[Any]] = {
    0x1E3D4C55: np.dtype("u1"),
    0x1E3D4C54: np.dtype("<i4"),
}
CIFAR_PIXELS = 3 * 32 * 32


def _exact(data: bytes, start: int, size: int, name: Name) -> None:
    """Raise an error if a file is shorter or longer than its header says."""
    expected = start + size
    if len(data) < expected:
        raise DataError(f"{name}: truncated: {len(data):,} bytes, its header says {expected:,}")
    if len(data) > expected:
        raise DataError(f"{name}: {len(data) - expected:,} bytes too many after the data")


def read_idx(data: bytes, name: Name, ndim: int) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes.

    Args:
        data: content of the file.
        name: for error messages.
        ndim: expected number of dimensions: 3 for images, 1 for labels.
    """
    if len(data) < 4:
        raise DataError(f"{name}: truncated: {len(data)} bytes, an IDX header has at least 4")
    zero, code, got = struct.unpack(">HBB", data[:4])
    if zero != 0 or code not in IDX_TYPES:
        raise DataError(f"{name}: not an IDX file: starts with {data[:4].hex()}")
    if code != 0x08:
        raise DataError(f"{name}: element type {IDX_TYPES[code].name}, expected uint8")
    if got != ndim:
        raise DataError(f"{name}: {got} dimensions, expected {ndim}: images and labels swapped?")
    start = 4 + 4 * ndim
    if len(data) < start:
        raise DataError(f"{name}: truncated: {len(data)} bytes, its header alone has {start}")
    shape = struct.unpack(f">{ndim}I", data[4:start])
    _exact(data, start, prod(shape), name)
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def write_idx(array: NDArray[Any]) -> bytes:
    """Write unsigned bytes as an IDX file."""
    _uint8(array)
    header = struct.pack(f">HBB{array.ndim}I", 0, 0x08, array.ndim, *array.shape)
    return header + array.tobytes()


def read_cifar(data: bytes, name: Name) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a CIFAR-10 binary batch: per image a label byte, then 1,024 red, green, blue bytes.

    Returns:
        pixels [N, 3, 32, 32] and labels [N].
    """
    record = 1 + CIFAR_PIXELS
    if len(data) == 0 or len(data) % record:
        raise DataError(
            f"{name}: {len(data):,} bytes is not a multiple of {record}-byte CIFAR-10 records: "
            "truncated, or another format"
        )
    rows = np.frombuffer(data, np.uint8).reshape(-1, record)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def write_cifar(pixels: NDArray[Any], labels: NDArray[Any]) -> bytes:
    """Write pixels [N, 3, 32, 32] and labels [N] as a CIFAR-10 binary batch."""
    _uint8(pixels)
    if pixels.shape[1:] != (3, 32, 32) or labels.shape != pixels.shape[:1]:
        raise ValueError(
            f"expected pixels [N, 3, 32, 32] and labels [N], got {pixels.shape} and {labels.shape}"
        )
    rows = [labels.astype(np.uint8)[:, None], pixels.reshape(len(pixels), CIFAR_PIXELS)]
    return np.concatenate(rows, axis=1).tobytes()


def read_svhn(data: bytes, name: Name) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read an SVHN cropped-digits MATLAB file; its label 10 means the digit 0.

    Returns:
        pixels [N, 3, 32, 32] and labels [N], 0 to 9.
    """
    try:
        content = read_arrays(data)
    except ValueError as error:
        raise DataError(f"{name}: not a readable MATLAB file ({error})") from error
    missing = {"X", "y"} - content.keys()
    if missing:
        raise DataError(f"{name}: no variable {', '.join(sorted(missing))}; SVHN has X and y")
    pixels, labels = content["X"], content["y"]
    if pixels.dtype != np.uint8 or labels.dtype.kind not in "ui":
        raise DataError(
            f"{name}: element types {pixels.dtype} and {labels.dtype}, expected uint8 for X and y"
        )
    if pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise DataError(f"{name}: X has shape {pixels.shape}, expected (32, 32, 3, images)")
    if labels.size != pixels.shape[3]:
        raise DataError(f"{name}: {pixels.shape[3]:,} images but {labels.size:,} labels")
    labels = labels.reshape(-1)
    if labels.size and not (labels.min() >= 1 and labels.max() <= 10):
        raise DataError(f"{name}: labels {labels.min()} to {labels.max()}, expected 1 to 10")
    return np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), (labels % 10).astype(np.uint8)


def read_norb(data: bytes, name: Name, ndim: int, dtype: str) -> NDArray[Any]:
    """Read a NORB binary matrix: little-endian magic, ndim, at least three sizes, data.

    Args:
        data: content of the file.
        name: for error messages.
        ndim: expected number of dimensions.
        dtype: expected element type, `uint8` or `int32`.
    """
    if len(data) < 8:
        raise DataError(f"{name}: truncated: {len(data)} bytes, a NORB header has at least 20")
    magic, got = struct.unpack("<2I", data[:8])
    if magic not in NORB_TYPES:
        raise DataError(f"{name}: not a NORB matrix: starts with {data[:4].hex()}")
    kind = NORB_TYPES[magic]
    if kind.name != dtype:
        raise DataError(f"{name}: element type {kind.name}, expected {dtype}: wrong NORB file?")
    if got != ndim:
        raise DataError(f"{name}: {got} dimensions, expected {ndim}: wrong NORB file?")
    # Matrices with fewer than three dimensions still store three sizes; unused ones are 1.
    stored = max(3, ndim)
    start = 8 + 4 * stored
    if len(data) < start:
        raise DataError(f"{name}: truncated: {len(data)} bytes, its header alone has {start}")
    shape = struct.unpack(f"<{stored}I", data[8:start])[:ndim]
    _exact(data, start, prod(shape) * kind.itemsize, name)
    return np.frombuffer(data, kind, offset=start).reshape(shape)


def write_norb(array: NDArray[Any]) -> bytes:
    """Write unsigned bytes or 32-bit integers as a NORB binary matrix."""
    magic = next((m for m, kind in NORB_TYPES.items() if kind == array.dtype), None)
    if magic is None:
        raise ValueError(f"NORB matrices must be uint8 or int32, got {array.dtype}")
    sizes = [*array.shape, 1, 1, 1][: max(3, array.ndim)]
    header = struct.pack(f"<{2 + len(sizes)}I", magic, array.ndim, *sizes)
    # Avoids a second copy of half a gigabyte.
    return b"".join((header, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data))


def _uint8(array: NDArray[Any]) -> None:
    if array.dtype != np.uint8:
        raise ValueError(f"pixels and labels must be uint8, got {array.dtype}")
