"""Official formats, byte for byte, and every refusal."""

import gzip
import struct

import numpy as np
import pytest
from helpers.small_sets import svhn_file
from hypothesis import given, settings
from hypothesis import strategies as st

from clustercaps.data import DataError
from clustercaps.data.files import read_content
from clustercaps.data.formats import (
    read_cifar,
    read_idx,
    read_norb,
    read_svhn,
    write_cifar,
    write_idx,
    write_norb,
)


def refusal(function, *arguments) -> str:
    with pytest.raises(DataError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_idx_header_is_the_published_one():
    # First 16 bytes of the training images of MNIST.
    header = bytes.fromhex("00000803 0000ea60 0000001c 0000001c")
    pixels = np.zeros((60_000, 28, 28), np.uint8)
    pixels[0, 0, 1] = 7
    data = write_idx(pixels)
    assert data[:16] == header
    assert len(data) == 47_040_016
    assert data[17] == 7


def test_norb_headers_are_the_published_ones():
    dat = write_norb(np.zeros((3, 2, 96, 96), np.uint8))
    assert dat[:24] == struct.pack("<6I", 0x1E3D4C55, 4, 3, 2, 96, 96)
    cat = write_norb(np.arange(5, dtype=np.int32))
    # One dimension, but three sizes.
    assert cat[:20] == struct.pack("<5I", 0x1E3D4C54, 1, 5, 1, 1)
    assert cat[20:] == struct.pack("<5i", 0, 1, 2, 3, 4)
    info = write_norb(np.array([[1, 2, 3, 4]], np.int32))
    assert info[:20] == struct.pack("<5I", 0x1E3D4C54, 2, 1, 4, 1)


def test_cifar_record_is_label_then_red_green_blue():
    record = bytes([6]) + bytes([10]) * 1024 + bytes([20]) * 1024 + bytes([30]) * 1024
    pixels, labels = read_cifar(record * 2, "batch")
    assert labels.tolist() == [6, 6]
    assert pixels.shape == (2, 3, 32, 32)
    assert [int(c) for c in pixels[1].mean(axis=(1, 2))] == [10, 20, 30]
    assert write_cifar(pixels, labels) == record * 2


def test_svhn_moves_axes_and_calls_ten_zero():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    labels = np.array([[1], [10], [9], [10]], np.uint8)
    got, numbers = read_svhn(svhn_file(pixels, labels), "train_32x32.mat")
    assert numbers.tolist() == [1, 0, 9, 0]
    assert got.shape == (4, 3, 32, 32)
    assert got[2, 1, 5, 7] == pixels[5, 7, 1, 2]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_norb_and_idx_round_trip(shape, seed):
    bytes_ = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(read_idx(write_idx(bytes_), "f", len(shape)), bytes_)
    assert np.array_equal(read_norb(write_norb(bytes_), "f", len(shape), "uint8"), bytes_)
    integers = bytes_.astype(np.int32) - 100
    assert np.array_equal(read_norb(write_norb(integers), "f", len(shape), "int32"), integers)


IDX = write_idx(np.zeros((2, 3, 3), np.uint8))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "truncated: 0 bytes"),
        (IDX[:10], "truncated: 10 bytes"),
        (IDX[:-1], "truncated: 33 bytes, its header says 34"),
        (IDX + b"xy", "2 bytes too many"),
        (b"\x01" + IDX[1:], "not an IDX file: starts with 01000803"),
        (IDX[:2] + b"\x07" + IDX[3:], "not an IDX file"),
        (IDX[:2] + b"\x0d" + IDX[3:], "element type float32, expected uint8"),
        (write_idx(np.zeros(4, np.uint8)), "1 dimensions, expected 3"),
    ],
)
def test_idx_refusals(data, words):
    message = refusal(read_idx, data, "train-images", 3)
    assert message.startswith("train-images: ")
    assert words in message


NORB = write_norb(np.zeros((2, 4), np.int32))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"abc", "truncated: 3 bytes"),
        (NORB[:12], "truncated: 12 bytes"),
        (NORB[:-4], "truncated: 48 bytes, its header says 52"),
        (NORB + b"\0", "1 bytes too many"),
        (b"\x00" + NORB[1:], "not a NORB matrix"),
        (write_norb(np.zeros((2, 4), np.uint8)), "element type uint8, expected int32"),
        (write_norb(np.zeros(2, np.int32)), "1 dimensions, expected 2"),
    ],
)
def test_norb_refusals(data, words):
    message = refusal(read_norb, data, "info.mat", 2, "int32")
    assert message.startswith("info.mat: ")
    assert words in message


@pytest.mark.parametrize("data", [b"", bytes(3072), bytes(3073 * 2 + 1)])
def test_cifar_refuses_broken_records(data):
    assert "3073-byte" in refusal(read_cifar, data, "test_batch.bin")


def good_svhn() -> bytes:
    return svhn_file(np.zeros((32, 32, 3, 2), np.uint8), np.ones((2, 1), np.uint8))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: good_svhn()[:-2000], "not a readable MATLAB file"),
        (lambda: b"<html>404</html>" * 20, "not a readable MATLAB file"),
        (lambda: b"", "not a readable MATLAB file"),
        (
            lambda: svhn_file(np.zeros((32, 32, 3, 2), np.float64), np.ones((2, 1), np.uint8)),
            "element types float64",
        ),
        (
            lambda: svhn_file(np.zeros((32, 32, 3, 2), np.uint8), np.ones((3, 1), np.uint8)),
            "2 images but 3 labels",
        ),
        (
            lambda: svhn_file(np.zeros((32, 3, 32, 2), np.uint8), np.ones((2, 1), np.uint8)),
            "expected (32, 32, 3, images)",
        ),
        (
            lambda: svhn_file(np.zeros((32, 32, 3, 2), np.uint8), np.array([[0], [1]], np.uint8)),
            "labels 0 to 1, expected 1 to 10",
        ),
        (
            lambda: svhn_file(np.zeros((32, 32, 3, 2), np.uint8), np.array([[11], [1]], np.uint8)),
            "labels 1 to 11, expected 1 to 10",
        ),
    ],
)
def test_svhn_refusals(data, words):
    message = refusal(read_svhn, data(), "train_32x32.mat")
    assert message.startswith("train_32x32.mat: ")
    assert words in message


def test_svhn_without_its_variables():
    from io import BytesIO

    from scipy.io import savemat

    stream = BytesIO()
    savemat(stream, {"X": np.zeros((32, 32, 3, 2), np.uint8)})
    assert "no variable y" in refusal(read_svhn, stream.getvalue(), "train_32x32.mat")


def zipped(content):
    # A fixed time: the bytes name the tests, and two workers must agree on the names.
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        (b"\n<!DOCTYPE html><html>404</html>", "web page"),
        (b"<HTML>", "web page"),
        (b"", "not a gzip file (starts with nothing"),
        (b"plain", "not a gzip file (starts with 706c6169"),
        (zipped(IDX)[:-9], "corrupt gzip"),
        (zipped(IDX)[:-8] + bytes(8), "corrupt gzip"),
        (zipped(IDX) + b"rubbish", "corrupt gzip"),
        (zipped(bytes(1000))[:12] + b"\xff" * 8, "corrupt gzip"),
    ],
)
def test_gzip_refusals(tmp_path, blob, words):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(blob)
    message = refusal(read_content, path)
    assert message.startswith(f"{path}: ")
    assert words in message


def test_files_are_unzipped_by_content_not_by_name(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(IDX))
    assert read_content(path) == IDX
    path.write_bytes(IDX)
    assert read_content(path) == IDX


def test_unreadable_files(tmp_path):
    assert "is a directory" in refusal(read_content, tmp_path)
    assert "no such file" in refusal(read_content, tmp_path / "nothing")


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (write_idx, (np.zeros(3, np.int64),)),
        (write_norb, (np.zeros(3, np.float32),)),
        (write_cifar, (np.zeros((2, 3, 32, 32), np.uint8), np.zeros(3, np.uint8))),
        (write_cifar, (np.zeros((2, 32, 32, 3), np.uint8), np.zeros(2, np.uint8))),
        (write_cifar, (np.zeros((2, 3, 32, 32)), np.zeros(2, np.uint8))),
    ],
)
def test_writers_refuse_what_they_cannot_keep(function, arguments):
    with pytest.raises(ValueError, match="got"):
        function(*arguments)
