"""Between datasets and the preprocessing that is stored with a network."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from clustercaps import data
from clustercaps.data.folders import size_before_crop
from clustercaps.utils import pixels
from clustercaps.utils.preprocessing import CHANNELS, Preprocessing


def preprocessing_of(
    name: str, size: int, class_names: Sequence[str], prepare: data.Prepare | None = None
) -> Preprocessing:
    """The preprocessing of a network that is trained on a dataset.

    Args:
        name: The dataset.
        size: Height and width of the network's input.
        class_names: Names of its classes.
        prepare: How its test images are prepared; `data.test_transform` by default.
    """
    prepare = prepare or data.test_transform(name, size=size)
    file_crop = None
    if data.is_streamed(name) or data.is_own(name):
        file_size, file_crop = size_before_crop(size), size
        channels = len(prepare.mean or (0, 0, 0))
    else:
        channels, file_size, _ = data.info(name).shape
    colour = next(each for each, count in CHANNELS.items() if count == channels)
    return Preprocessing(
        colour,
        size,
        tuple(class_names),
        prepare.mean,
        prepare.std,
        prepare.standardise,
        file_size,
        file_crop,
        prepare.resize,
        # The path of a folder means nothing to others.
        "" if data.is_own(name) else name,
    )


def prepare_of(preprocessing: Preprocessing) -> data.Prepare:
    """What makes pixels, as datasets and `read_pixels` give them, ready for the network."""
    # Crops already have the size of the network's input.
    cropped = preprocessing.file_crop is not None
    return data.Prepare(
        None if cropped else preprocessing.img_size,
        preprocessing.resize,
        preprocessing.standardise,
        preprocessing.mean,
        preprocessing.std,
    )


def read_pixels(path: Path, preprocessing: Preprocessing) -> UInt8[Tensor, "channels side side"]:
    """An image file as the pixels of a dataset: resized, cropped, grey or in colour."""
    return torch.from_numpy(pixels.read_pixels(path, preprocessing))
