"""Images are prepared in NumPy as they are in torch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clustercaps.export.pixels import prepare, read_input
from clustercaps.models import Preprocessing
from clustercaps.training.preprocessing import prepare_of, read_pixels

GREY = Preprocessing("grey", 32, (), (0.286,), (0.353,), file_size=28)
COLOUR = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}


@pytest.mark.parametrize(
    "preprocessing",
    [
        GREY,
        Preprocessing("grey", 25, file_size=28),
        Preprocessing("rgb", 32, (), **COLOUR, file_size=37, file_crop=32),
        Preprocessing("rgb", 48, (), **COLOUR, file_size=32, resize=48),
        Preprocessing("rgb", 20, (), **COLOUR, file_size=32, resize=24),
        Preprocessing("rgb", 16, standardise=True, file_size=32, resize=16),
        Preprocessing("stereo", 32, standardise=True, file_size=96, resize=48),
    ],
)
def test_steps_are_those_of_torch(preprocessing: Preprocessing) -> None:
    side = preprocessing.file_crop or preprocessing.read_size
    shape = (preprocessing.in_chans, side, side)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = prepare_of(preprocessing)(torch.from_numpy(pixels)[None])[0]
    actual = prepare(pixels, preprocessing)
    assert actual.shape == (preprocessing.in_chans, *(preprocessing.img_size,) * 2)
    torch.testing.assert_close(torch.from_numpy(actual), expected, rtol=1e-5, atol=2e-5)


def test_a_black_image_is_not_divided_by_zero() -> None:
    preprocessing = Preprocessing("grey", 8, standardise=True)
    assert (prepare(np.zeros((1, 8, 8), np.uint8), preprocessing) == 0).all()


def test_files_are_read_as_for_torch(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    pixels = np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    expected = prepare_of(GREY)(read_pixels(path, GREY)[None])[0]
    torch.testing.assert_close(torch.from_numpy(read_input(path, GREY)), expected)


def test_a_file_is_no_stereo_pair(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stereo pairs of 2 channels"):
        read_input(tmp_path / "image.png", Preprocessing("stereo", 32))
