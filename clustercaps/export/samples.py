"""Images on which an exported file is compared with its network."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor

from clustercaps.data.catalogue import published_name
from clustercaps.models.packaged import WEIGHTS
from clustercaps.training.finished import Trained
from clustercaps.training.preprocessing import read_pixels
from clustercaps.utils.image_files import find_images

# The sizes of the batches that are compared.
BATCHES = (1, 16)
SEED = 0


class Samples(NamedTuple):
    """Prepared images, and where they are from."""

    images: Float[Tensor, "images channels height width"]
    origin: str


def draw_samples(trained: Trained, files: Sequence[str] = ()) -> Samples:
    """As many images as the largest batch: the user's, packaged test images, or noise.

    Args:
        trained: The network.
        files: Image files, folders or patterns; repeated if there are too few.
    """
    count = max(BATCHES)
    stored = WEIGHTS / f"{published_name(trained.data_name)}.safetensors"
    shape = (trained.model.in_chans, *trained.model.img_size)
    if files:
        paths = find_images(files)[:count]
        pixels = torch.stack([read_pixels(path, trained.preprocessing) for path in paths])
        origin = f"{len(paths)} of your images"
    elif trained.data_name and stored.is_file():
        kept = load_file(stored)["pixels"]
        # Spread over the file, which is sorted by class.
        pixels = kept[torch.arange(count) * len(kept) // count]
        origin = f"{count} test images of {published_name(trained.data_name)}"
    else:
        generator = torch.Generator().manual_seed(SEED)
        images = torch.randn(count, *shape, generator=generator)
        return Samples(images, "noise; pass --images to compare on real images")
    images = trained.prepare(pixels)
    repeats = -(-count // len(images))
    return Samples(images.repeat(repeats, 1, 1, 1)[:count], origin)
