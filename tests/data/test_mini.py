"""The embedded subset of Fashion-MNIST."""

import hashlib
import lzma

import numpy as np
import pytest
import torch

from clustercaps.data import DataError, Images, load, make_mini, mini


@pytest.mark.parametrize(("split", "each"), [("train", 1000), ("test", 200)])
def test_counts_and_kind(split, each):
    images = load("fashion-mnist-mini", split)
    assert images.pixels.shape == (10 * each, 1, 28, 28)
    assert images.labels.bincount().tolist() == [each] * 10
    # Any run of ten holds every class.
    assert images.labels[:10].tolist() == list(range(10))
    # Close to the full set, as a fair sample must be.
    assert float(images.pixels.float().mean()) / 255 == pytest.approx(0.2860, abs=0.003)
    assert len({bytes(image.numpy()) for image in images.pixels}) > 9.99 * each


def test_size():
    assert mini.MINI_FILE.stat().st_size <= 6_000_000


def test_no_image_is_in_both_splits():
    train, test = (
        {bytes(image.numpy()) for image in load("fashion-mnist-mini", split).pixels}
        for split in ("train", "test")
    )
    assert not train & test


def test_damage_is_noticed(monkeypatch, tmp_path):
    payload = bytearray(lzma.decompress(mini.MINI_FILE.read_bytes()))
    assert hashlib.sha256(payload).hexdigest() == mini.MINI_SHA256
    payload[1_000_000] ^= 1
    path = tmp_path / "mini.xz"
    path.write_bytes(lzma.compress(bytes(payload), preset=0))
    monkeypatch.setattr(mini, "MINI_FILE", path)
    with pytest.raises(DataError, match="wrong checksum for this version"):
        load("fashion-mnist-mini")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot read file"):
        load("fashion-mnist-mini")


def test_the_choice_depends_on_numbers_only():
    labels = np.repeat(np.arange(10), 30)
    first = make_mini.choose(labels, "train", 100)
    assert np.array_equal(first, make_mini.choose(labels.copy(), "train", 100))
    assert not np.array_equal(first, make_mini.choose(labels, "test", 100))
    assert len(set(first.tolist())) == 100
    assert labels[first].tolist() == list(range(10)) * 10
    # Pinned: a change of the rule would silently change the subset.
    assert first[:3].tolist() == [10, 31, 65]


def test_payload_is_laid_out_as_it_is_read(monkeypatch, tmp_path):
    rng = torch.Generator().manual_seed(0)
    full = {
        split: Images(
            torch.randint(0, 256, (n, 1, 28, 28), dtype=torch.uint8, generator=rng),
            torch.arange(n) % 10,
        )
        for split, n in (("train", 60), ("test", 40))
    }
    counts = {"train": 30, "test": 20}
    monkeypatch.setattr(make_mini, "MINI_COUNTS", counts)
    monkeypatch.setattr(mini, "MINI_COUNTS", counts)
    payload = make_mini.payload(full)
    path = tmp_path / "mini.xz"
    path.write_bytes(lzma.compress(payload, filters=make_mini.XZ))
    monkeypatch.setattr(mini, "MINI_FILE", path)
    monkeypatch.setattr(mini, "MINI_SHA256", hashlib.sha256(payload).hexdigest())
    for split, count in counts.items():
        pixels, labels = mini.read_mini(split)
        chosen = make_mini.choose(full[split].labels.numpy(), split, count)
        assert np.array_equal(pixels, full[split].pixels.numpy()[chosen])
        assert np.array_equal(labels, full[split].labels.numpy()[chosen])
