"""Read numeric arrays from MATLAB 5 files, the format of SVHN, with every size bounded.

A file is a header of 128 bytes and a list of elements. An element is a tag (type, number of bytes)
and its data, padded to 8 bytes; up to 4 bytes of data may be inside the tag. A compressed element
holds one other element. An array is an element of four: flags, sizes, name, numbers. Anything else
that MATLAB can store (cells, structures, text, sparse or complex arrays) is refused.
"""

import struct
import zlib
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER = 128
# Types of elements.
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8"}
NUMBERS[13] = "u8"
# Classes of arrays of numbers, from double to uint64.
NUMERIC = range(6, 16)
COMPLEX = 0x800
# The format's own limit for one array.
LARGEST = 2**31


def read_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name, in the element type that is stored.

    Raises:
        ValueError: what is wrong with the file, in a few words.
    """
    if len(data) < HEADER:
        raise ValueError(f"{len(data)} bytes, the header alone has {HEADER}")
    orders = {b"IM": "<", b"MI": ">"}
    version, mark = data[124:126], data[126:128]
    if mark not in orders or version not in (b"\x00\x01", b"\x01\x00"):
        raise ValueError(f"no MATLAB 5 header: it ends with {data[124:128].hex()}")
    order = orders[mark]
    arrays: dict[str, NDArray[Any]] = {}
    for kind, content in _elements(memoryview(data)[HEADER:], order):
        if kind == COMPRESSED:
            kind, content = _unpacked(content, order)
        if kind != MATRIX:
            raise ValueError(f"element of type {kind}, expected an array")
        name, array = _array(content, order)
        if name in arrays:
            raise ValueError(f"two arrays named {name!r}")
        arrays[name] = array
    return arrays


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and data of each element."""
    place = 0
    while place < len(content):
        if len(content) - place < 8:
            raise ValueError(f"truncated: {len(content) - place} bytes where a tag has 8")
        kind, size = struct.unpack_from(f"{order}2I", content, place)
        start = place + 8
        # A tag with the number of bytes in the upper half of its type holds the data itself.
        if kind >> 16:
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
            if size > 4:
                raise ValueError(f"{size} bytes inside a tag, which has room for 4")
            place += 8
        else:
            # Compressed elements are not padded.
            place = start + size + (0 if kind == COMPRESSED else -size % 8)
        if start + size > len(content):
            raise ValueError(
                f"truncated: an element of {size:,} bytes, {len(content) - start:,} left"
            )
        yield kind, content[start : start + size]


def _unpacked(content: memoryview, order: str) -> tuple[int, memoryview]:
    """Type and data of the one element inside a compressed one."""
    stream = zlib.decompressobj()
    try:
        tag = stream.decompress(content, 8)
        if len(tag) < 8:
            raise ValueError("truncated: no tag in a compressed element")
        kind, size = struct.unpack(f"{order}2I", tag)
        if size > LARGEST:
            raise ValueError(f"an array of {size:,} bytes, the format allows {LARGEST:,}")
        # One byte more shows data beyond the stated size; the rest of the stream is its checksum.
        data = stream.decompress(stream.unconsumed_tail, size + 1)
    except zlib.error as error:
        raise ValueError(f"corrupt compressed element: {error}") from error
    if len(data) != size or not stream.eof or stream.unused_data:
        raise ValueError(f"a compressed element that does not hold the {size:,} bytes it states")
    return kind, memoryview(data)


def _array(content: memoryview, order: str) -> tuple[str, NDArray[Any]]:
    parts = list(_elements(content, order))
    kinds = [kind for kind, _ in parts]
    if len(parts) != 4 or kinds[:3] != [UINT32, INT32, INT8] or kinds[3] not in NUMBERS:
        raise ValueError(f"an array of elements {kinds}: not one of plain numbers")
    flags, sizes, name, numbers = (part for _, part in parts)
    if len(flags) != 8 or len(sizes) % 4 or not 8 <= len(sizes) <= 4 * 32:
        raise ValueError(f"{len(flags)} bytes of flags and {len(sizes)} of sizes in an array")
    flag = struct.unpack_from(f"{order}I", flags)[0]
    if flag & 0xFF not in NUMERIC or flag & COMPLEX:
        raise ValueError(f"array class {flag & 0xFF}: not one of plain numbers")
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    kind = np.dtype(order + NUMBERS[kinds[3]])
    if min(shape) < 0 or prod(shape) * kind.itemsize != len(numbers):
        raise ValueError(f"{len(numbers):,} bytes for an array of shape {shape}")
    # Columns first.
    values = np.frombuffer(numbers, kind).reshape(shape, order="F")
    return bytes(name).decode("latin-1"), values
