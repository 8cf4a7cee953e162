"""`load` on small sets in the official formats."""

import gzip
import tarfile

import numpy as np
import pytest
import torch

from clustercaps.data import SETS, DataError, Images, load
from clustercaps.data.formats import read_cifar, read_idx, read_norb, write_idx, write_norb
from clustercaps.data.published import PUBLISHED

NAMES = sorted(PUBLISHED)


def quiet(_: str) -> None:
    pass


def small(name: str, folder, split: str = "train") -> Images:
    return load(name, split, folder, verify=False, say=quiet)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_set_loads(make_set, name, split):
    images = small(name, make_set(name), split)
    known = SETS[name]
    assert images.pixels.shape[1:] == known.shape
    assert images.labels.min() == 0
    assert images.labels.max() == known.num_classes - 1
    assert images.meta["name"] == name
    assert images.meta["split"] == split
    assert images.meta["class_names"] == known.class_names
    assert len(set(images.pixels.flatten(1).sum(1).tolist())) > len(images) // 2


def test_idx_pixels_are_those_of_the_file(make_set):
    folder = make_set("mnist")
    images = small("mnist", folder, "test")
    raw = read_idx(gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes()), "f", 3)
    assert np.array_equal(images.pixels[:, 0].numpy(), raw)


def test_cifar_batches_are_joined_in_order(make_set):
    folder = make_set("cifar10", 4)
    images = small("cifar10", folder)
    assert len(images) == 20
    third, _ = read_cifar((folder / "data_batch_3.bin").read_bytes(), "f")
    assert np.array_equal(images.pixels[8:12].numpy(), third)


def test_norb_keeps_cameras_and_viewpoints(make_set):
    folder = make_set("smallnorb", 20)
    images = small("smallnorb", folder)
    file = PUBLISHED["smallnorb"].train[0].name
    raw = read_norb(gzip.decompress((folder / file).read_bytes()), "f", 4, "uint8")
    assert np.array_equal(images.pixels.numpy(), raw)
    assert images.meta["azimuth"].tolist()[:19] == [*range(0, 36, 2), 0]
    assert images.meta["elevation"].tolist()[:10] == [*range(9), 0]
    assert images.meta["instance"].dtype == torch.int64
    assert images.meta["lighting"].max() == 5


@pytest.mark.parametrize("sub", ["", "MNIST/raw", "mnist"])
def test_raw_files_in_the_usual_folders(make_set, sub):
    folder = make_set("mnist", sub=sub)
    expected = small("mnist", folder)
    for path in list((folder / sub).iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    again = small("mnist", folder)
    assert torch.equal(again.pixels, expected.pixels)
    assert again.meta["source"] == str(folder / sub)


def test_unzipped_norb(make_set):
    folder = make_set("smallnorb")
    expected = small("smallnorb", folder)
    for path in list(folder.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert torch.equal(small("smallnorb", folder).pixels, expected.pixels)


def test_cifar_archive(make_set, tmp_path):
    folder = make_set("cifar10")
    expected = small("cifar10", folder, "test")
    other = tmp_path / "packed"
    other.mkdir()
    with tarfile.open(other / "cifar-10-binary.tar.gz", "w:gz") as tar:
        tar.add(folder, "cifar-10-batches-bin")
    assert torch.equal(small("cifar10", other, "test").pixels, expected.pixels)
    with pytest.raises(DataError, match=r"tar\.gz/test_batch\.bin: not the published file"):
        load("cifar10", "test", other, say=quiet)
    blob = (other / "cifar-10-binary.tar.gz").read_bytes()
    (other / "cifar-10-binary.tar.gz").write_bytes(blob[: len(blob) // 2])
    with pytest.raises(DataError, match="corrupt archive"):
        small("cifar10", other)


def break_counts(folder):
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(write_idx(np.zeros(19, np.uint8)))
    )


def break_labels(folder):
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(write_idx(np.full(20, 10, np.uint8)))
    )


def break_shape(folder):
    (folder / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(write_idx(np.zeros((20, 28, 27), np.uint8)))
    )


def break_all(folder):
    for name, shape in (("images-idx3", (0, 28, 28)), ("labels-idx1", (0,))):
        (folder / f"train-{name}-ubyte.gz").write_bytes(
            gzip.compress(write_idx(np.zeros(shape, np.uint8)))
        )


def remove_labels(folder):
    (folder / "train-labels-idx1-ubyte.gz").unlink()


def html(folder):
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(b"<!DOCTYPE html><title>403</title>")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (break_counts, "20 images but 19 labels"),
        (break_labels, "labels 10 to 10, expected 0 to 9"),
        (break_shape, r"shape \(1, 28, 27\), expected \(1, 28, 28\)"),
        (break_all, "contain no images"),
        (remove_labels, "incomplete: train-labels-idx1-ubyte missing"),
        (html, "train-labels-idx1-ubyte.gz: a web page"),
    ],
)
def test_refusals_are_one_line_and_leave_the_cache_alone(make_set, cache, damage, words):
    folder = make_set("mnist")
    damage(folder)
    with pytest.raises(DataError, match=words) as caught:
        small("mnist", folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("part", "array", "words"),
    [
        (1, np.full(20, 5, np.int32), "labels 5 to 5, expected 0 to 4"),
        (1, np.full(20, -1, np.int32), "labels -1 to -1"),
        (2, np.zeros((19, 4), np.int32), r"shape \(19, 4\), expected \(20, 4\)"),
        (2, np.full((20, 4), 9, np.int32), "elevation codes 9 to 9, expected 0 to 8"),
    ],
)
def test_norb_refusals(make_set, part, array, words):
    folder = make_set("smallnorb")
    (folder / PUBLISHED["smallnorb"].train[part].name).write_bytes(gzip.compress(write_norb(array)))
    with pytest.raises(DataError, match=words):
        small("smallnorb", folder)


@pytest.mark.parametrize("name", NAMES)
def test_verification_refuses_what_is_not_published(make_set, name):
    with pytest.raises(DataError, match=r"not the published file: expected .* got .* bytes"):
        load(name, "test", make_set(name), say=quiet)


def test_published_counts_are_checked_where_no_checksum_is_published(make_set):
    folder = make_set("smallnorb")
    for path in list(folder.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    said: list[str] = []
    with pytest.raises(DataError, match=r"368,664 bytes, expected 447,897,624"):
        load("smallnorb", "test", folder, say=said.append)
    assert any("only the .gz has a published checksum" in line for line in said)


def test_unknown_names():
    with pytest.raises(KeyError, match="did you mean 'fashion-mnist'"):
        load("fashion_mnst")
    with pytest.raises(ValueError, match="split must be"):
        load("mnist", "validation")
    with pytest.raises(ValueError, match="open_folder"):
        load("imagenet")


def test_subset_takes_everything_along(make_set):
    images = small("smallnorb", make_set("smallnorb"))
    part = images.subset([3, 1])
    assert torch.equal(part.pixels, images.pixels[[3, 1]])
    assert part.meta["azimuth"].tolist() == [6, 2]
    assert part.meta["class_names"] == images.meta["class_names"]
    assert len(images.subset(images.labels == 0)) == 4
    assert len(images.subset(slice(0, 7))) == 7
    assert len(images.subset([])) == 0


def test_images_refuse_unequal_rows():
    pixels = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="one row per image"):
        Images(pixels, torch.zeros(2, dtype=torch.int64), {"azimuth": torch.zeros(3)})
