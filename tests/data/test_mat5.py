"""Our reader of MATLAB files agrees with scipy's, and refuses what scipy may crash on."""

import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from clustercaps.data.mat5 import read_arrays

DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8")


def saved(compressed: bool, **arrays: np.ndarray) -> bytes:
    stream = BytesIO()
    savemat(stream, arrays, do_compression=compressed)
    return stream.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_as_scipy_reads_them(dtype: str, compressed: bool) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "X": rng.integers(0, 100, (3, 4, 5, 2)).astype(dtype),
        "y": rng.integers(0, 100, (7, 1)).astype(dtype),
        "one": np.array([[3]], dtype),
        "a_long_name": np.zeros((0, 2), dtype),
    }
    data = saved(compressed, **arrays)
    ours, theirs = read_arrays(data), loadmat(BytesIO(data))
    assert ours.keys() == arrays.keys()
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype
        assert np.array_equal(array, theirs[name])


def element(kind: int, data: bytes) -> bytes:
    return struct.pack(">2I", kind, len(data)) + data + bytes(-len(data) % 8)


def test_big_endian_files() -> None:
    parts = [(6, struct.pack(">2I", 9, 0)), (5, struct.pack(">2i", 2, 1)), (1, b"y")]
    array = b"".join(element(*part) for part in [*parts, (4, struct.pack(">2H", 1, 770))])
    data = b" " * 124 + b"\x01\x00MI" + element(14, array)
    assert read_arrays(data)["y"].tolist() == [[1], [770]]
    assert loadmat(BytesIO(data))["y"].tolist() == [[1], [770]]


GOOD = saved(False, X=np.zeros((2, 2), np.uint8))
PACKED = saved(True, X=np.zeros((2, 2), np.uint8))


def repacked(content: bytes) -> bytes:
    packed = zlib.compress(content)
    return GOOD[:128] + struct.pack("<2I", 15, len(packed)) + packed


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "header"),
        (b"\x89HDF" * 64, "no MATLAB 5 header"),
        (GOOD[:-1], "truncated"),
        (GOOD + b"123", "truncated: 3 bytes where a tag"),
        (GOOD + GOOD[128:], "two arrays named 'X'"),
        (PACKED[:-1], "truncated"),
        (PACKED[:-3] + b"???", "corrupt compressed element|does not hold"),
        (repacked(GOOD[128:] + b"more"), "does not hold"),
        (repacked(GOOD[128:-4]), "does not hold"),
        (repacked(struct.pack("<2I", 14, 2**32 - 1) + bytes(99)), "the format allows"),
        (repacked(b"1234"), "no tag"),
        (repacked(repacked(GOOD[128:])[128:]), "of type 15|does not hold"),
        (GOOD[:128] + struct.pack("<2I", 2, 8) + bytes(8), "of type 2, expected an array"),
        (saved(False, X=np.array([["text"]])), "not one of plain numbers"),
        (saved(False, X=np.array([[1 + 2j]])), "not one of plain numbers"),
    ],
)
def test_refusals(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_arrays(data)


def test_every_flipped_byte_of_the_headers_gives_an_error_or_an_array() -> None:
    for place in range(124, len(GOOD)):
        for bit in range(8):
            data = GOOD[:place] + bytes([GOOD[place] ^ 1 << bit]) + GOOD[place + 1 :]
            try:
                arrays = read_arrays(data)
            except ValueError:
                continue
            assert all(array.size <= 4 for array in arrays.values())
