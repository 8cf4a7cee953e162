"""Mean and standard deviation of the pixels of a dataset."""

from typing import NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from clustercaps.data.folders import FolderImages
from clustercaps.data.images import Images

# Of a streamed folder, at most this many images are read, evenly spaced.
MOST_READ = 1000
# No channel is divided by less than one grey level.
SMALLEST = 1 / 255


class Statistics(NamedTuple):
    """Mean and standard deviation per channel, of pixels in 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def statistics_of(images: Images | FolderImages) -> Statistics:
    """The statistics of a training set; of a streamed one, of at most 1,000 of its images."""
    if isinstance(images, Images):
        return pixel_statistics(images.pixels)
    whole = images.unaugmented()
    step = max(1, len(whole) // MOST_READ)
    return pixel_statistics(torch.stack([whole[i][0] for i in range(0, len(whole), step)]))


def pixel_statistics(pixels: UInt8[Tensor, "images channels height width"]) -> Statistics:
    """Mean and standard deviation of each channel."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in pixels.transpose(0, 1).flatten(1):
        # From a histogram: exact, and without a float copy of the dataset.
        share = torch.bincount(channel, minlength=256).double() / channel.numel()
        mean = float((share * values).sum())
        means.append(mean)
        deviations.append(max(float((share * (values - mean) ** 2).sum().sqrt()), SMALLEST))
    return Statistics(tuple(means), tuple(deviations))
