"""Pixels as the input of a network, in NumPy: the steps of `Preprocessing` without torch."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from clustercaps.utils.pixels import read_pixels
from clustercaps.utils.preprocessing import SMALLEST_STD, Preprocessing

Pixels = UInt8[np.ndarray, "channels side side"]
Maps = Float32[np.ndarray, "channels height width"]
Square = Float32[np.ndarray, "channels new_side new_side"]


def read_input(path: Path, preprocessing: Preprocessing) -> Maps:
    """An image file, ready for the network."""
    return prepare(read_pixels(path, preprocessing), preprocessing)


def prepare(pixels: Pixels, preprocessing: Preprocessing) -> Maps:
    """Resize, scale, standardise, centre and normalise the pixels of one image."""
    image = pixels.astype(np.float32)
    if preprocessing.resize is not None:
        image = resized(image, preprocessing.resize)
    image = image / np.float32(255)
    if preprocessing.standardise:
        image = image - image.mean(dtype=np.float32)
        image = image / max(np.sqrt(np.square(image).mean()), np.float32(SMALLEST_STD))
    if preprocessing.file_crop is None:
        image = centred(image, preprocessing.img_size)
    if preprocessing.mean is not None and preprocessing.std is not None:
        mean, std = (
            np.array(numbers, np.float32).reshape(-1, 1, 1)
            for numbers in (preprocessing.mean, preprocessing.std)
        )
        image = (image - mean) / std
    return np.ascontiguousarray(image, np.float32)


def resized(image: Maps, side: int) -> Square:
    """Resize a square image with bilinear interpolation; smaller ones average over all pixels."""
    now = image.shape[-1]
    if now == side:
        return image
    weights = bilinear(now, side)
    return (weights @ image @ weights.T).astype(np.float32)


def bilinear(now: int, side: int) -> Float32[np.ndarray, "side now"]:
    """Weight of every pixel of a row in every pixel of the resized row.

    As in Pillow, and in torch with antialias where rows become shorter: a triangle around the
    centre of each new pixel, as wide as the new pixel if that is the larger one.
    """
    scale = now / side
    # Halving averages pairs, as `data.Prepare` does.
    if now == 2 * side:
        return np.repeat(np.eye(side), 2, axis=1).astype(np.float32) / np.float32(2)
    reach = max(scale, 1.0)
    centres = (np.arange(side) + 0.5) * scale
    if reach == 1.0:
        # Beyond the outermost centres the image goes on with its edge.
        centres = centres.clip(0.5, now - 0.5)
    distance = np.abs(np.arange(now) + 0.5 - centres[:, None]) / reach
    weights = (1 - distance).clip(min=0)
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


def centred(image: Maps, size: int) -> Square:
    """Pad with zeros or crop to a square around the centre."""
    for axis in (1, 2):
        before = (size - image.shape[axis]) // 2
        after = size - image.shape[axis] - before
        if before < 0 or after < 0:
            image = image.take(range(-before, image.shape[axis] + after), axis)
        else:
            image = np.pad(image, [(before, after) if axis == a else (0, 0) for a in range(3)])
    return image
