"""Image files as the pixels of a dataset; without torch."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from clustercaps.utils.image_files import read_rgb
from clustercaps.utils.preprocessing import Preprocessing

# Luma coefficients of red, green and blue (ITU-R 601).
GREY = (0.299, 0.587, 0.114)


def read_pixels(
    path: Path, preprocessing: Preprocessing
) -> UInt8[np.ndarray, "channels side side"]:
    """An image file in the format of the training set: resized, cropped, grey or in colour."""
    if preprocessing.colour == "stereo":
        raise ValueError(
            f"{path}: the network takes stereo pairs of 2 channels; a single file cannot give them"
        )
    pixels = read_rgb(path, preprocessing.read_size)
    crop = preprocessing.file_crop
    if crop is not None:
        edge = (preprocessing.read_size - crop) // 2
        pixels = pixels[edge : edge + crop, edge : edge + crop]
    if preprocessing.colour == "grey":
        grey = (pixels * np.array(GREY, np.float32)).sum(2, keepdims=True)
        pixels = grey.round().astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
