"""Transforms of each dataset for training and testing, at every image size.

Images of 32x32 are preprocessed as in the cluster routing paper; for other sizes, crops and shifts
follow the papers of the networks that were designed for them (docs/data.md).
"""

import math
from dataclasses import replace

from clustercaps.data.augment import Augment
from clustercaps.data.catalogue import info, is_own, is_streamed
from clustercaps.data.prepare import Prepare
from clustercaps.data.statistics import Statistics

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# The paper's image size, and its padding before a crop of this size.
PAPER_SIZE, PAPER_PADDING = 32, 4


def test_transform(
    name: str,
    normalise: bool = True,  # noqa: PT028
    size: int = PAPER_SIZE,  # noqa: PT028
    statistics: Statistics | None = None,  # noqa: PT028
) -> Prepare:
    """Transform for test images of a dataset.

    Args:
        name: a dataset, `imagenet`, `folder:PATH` or `own:NAME`.
        normalise: normalise with the statistics of the dataset; stereo pairs are always
            standardised per image.
        size: height and width of the network's input; test images of folders and `own:NAME`
            already have it.
        statistics: mean and standard deviation to normalise with; the published ones by default,
            for folders those of ImageNet.
    """
    if is_streamed(name) or is_own(name):
        used = statistics or Statistics(IMAGENET_MEAN, IMAGENET_STD)
        return Prepare(mean=used.mean, std=used.std) if normalise else Prepare()
    known = info(name)
    if known.stereo:
        return Prepare(size, _stereo_side(size), standardise=True)
    resize = None if size <= known.shape[1] + 2 * PAPER_PADDING else size
    mean, std = statistics or (known.mean, known.std) if normalise else (None, None)
    return Prepare(size, resize, mean=mean, std=std)


def train_transform(
    name: str,
    normalise: bool = True,
    size: int = PAPER_SIZE,
    statistics: Statistics | None = None,
) -> Augment:
    """Transform for training images of a dataset.

    Args:
        name: a dataset, `imagenet` or `folder:PATH` (these are cropped and flipped while reading,
            and with `own_transform` if they are in memory).
        normalise: normalise with the statistics of the dataset; stereo pairs are always
            standardised per image.
        size: height and width of the network's input; streamed images already have it.
        statistics: mean and standard deviation to normalise with, as for `test_transform`.
    """
    prepare = test_transform(name, normalise, size, statistics)
    if is_streamed(name):
        return Augment(prepare)
    known = info(name)
    if known.stereo:
        return _augment_stereo(prepare, size)
    # Digits are not flipped. The paper does not cover MNIST: otherwise as Fashion-MNIST.
    flip = 0.0 if name in ("mnist", "svhn") else 0.5
    side = known.shape[1]
    # Largest offset of the paper's crops from the centre: 4 pixels, or 2 for images of 28x28.
    reach = PAPER_PADDING - (PAPER_SIZE - side) / 2
    margin = math.ceil((size - (prepare.resize or side)) / 2)
    padding = max(0, round(reach * size / PAPER_SIZE) + margin)
    return Augment(prepare, jitter=0.2, padding=padding, flip=flip)


def own_transform(size: int, prepare: Prepare) -> Augment:
    """Transform for training images of one's own in memory: jitter, random crop, flip.

    Args:
        size: height and width of the crop; images are larger, as `size_before_crop` says.
        prepare: transform of test images, which normalises.
    """
    return Augment(replace(prepare, size=size), jitter=0.2, flip=0.5)


def _stereo_side(size: int) -> int:
    """The side to which stereo pairs of 96x96 are resized before a crop of `size`."""
    if size <= PAPER_SIZE:
        return 48
    # Efficient-CapsNet crops 48 of 64. Larger images are not cropped, as in Heinsen's network.
    return 64 if size <= 48 else size


def _augment_stereo(prepare: Prepare, size: int) -> Augment:
    if size <= PAPER_SIZE:
        padding = round(PAPER_PADDING * size / PAPER_SIZE)
        return Augment(prepare, jitter=0.2, padding=padding, shift=0.2)
    if size <= 48:
        return Augment(prepare, jitter=0.2)
    # 16 of 96 pixels, as in Heinsen's network.
    return Augment(prepare, jitter=0.2, padding=round(size / 6), edges=True)


# pytest would collect it as a test because of its name.
test_transform.__test__ = False  # type: ignore[attr-defined]
