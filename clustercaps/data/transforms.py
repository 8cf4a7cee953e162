"""How the images of each dataset are prepared for training and for testing, at every size.

Images of 32x32 are prepared as in the cluster routing paper; for other sizes, crops and shifts
follow the papers of the networks that were designed for them (docs/data.md).
"""

import math

from clustercaps.data.augment import Augment
from clustercaps.data.catalogue import info, is_streamed
from clustercaps.data.prepare import Prepare

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# The paper's size, and what it pads around every image before a crop of this size is taken.
PAPER_SIZE, PAPER_PADDING = 32, 4


def test_transform(name: str, normalise: bool = True, size: int = PAPER_SIZE) -> Prepare:  # noqa: PT028
    """Preparation of test images of a set.

    Args:
        name: a set, `imagenet` or `folder:PATH`.
        normalise: divide by the set's statistics; stereo pairs are standardised by image anyway.
        size: height and width that a network sees; streamed images have theirs already.
    """
    if is_streamed(name):
        return Prepare(mean=IMAGENET_MEAN, std=IMAGENET_STD) if normalise else Prepare()
    known = info(name)
    if known.stereo:
        return Prepare(size, _stereo_side(size), standardise=True)
    resize = None if size <= known.shape[1] + 2 * PAPER_PADDING else size
    mean, std = (known.mean, known.std) if normalise else (None, None)
    return Prepare(size, resize, mean=mean, std=std)


def train_transform(name: str, normalise: bool = True, size: int = PAPER_SIZE) -> Augment:
    """Preparation of training images of a set.

    Args:
        name: a set, `imagenet` or `folder:PATH` (crop and flip of these happen while reading).
        normalise: divide by the set's statistics; stereo pairs are standardised by image anyway.
        size: height and width that a network sees; streamed images have theirs already.
    """
    prepare = test_transform(name, normalise, size)
    if is_streamed(name):
        return Augment(prepare)
    known = info(name)
    if known.stereo:
        return _augment_stereo(prepare, size)
    # Digits are not mirrored. The paper has no line for MNIST: as Fashion-MNIST otherwise.
    flip = 0.0 if name in ("mnist", "svhn") else 0.5
    side = known.shape[1]
    # How far the paper's crops lie off the centre, at most: 4 pixels, or 2 for images of 28x28.
    reach = PAPER_PADDING - (PAPER_SIZE - side) / 2
    margin = math.ceil((size - (prepare.resize or side)) / 2)
    padding = max(0, round(reach * size / PAPER_SIZE) + margin)
    return Augment(prepare, jitter=0.2, padding=padding, flip=flip)


def _stereo_side(size: int) -> int:
    """What stereo pairs of 96x96 are resized to, before a part of `size` is taken."""
    if size <= PAPER_SIZE:
        return 48
    # Efficient-CapsNet takes 48 of 64. Larger images are whole, as in Heinsen's network.
    return 64 if size <= 48 else size


def _augment_stereo(prepare: Prepare, size: int) -> Augment:
    if size <= PAPER_SIZE:
        padding = round(PAPER_PADDING * size / PAPER_SIZE)
        return Augment(prepare, jitter=0.2, padding=padding, shift=0.2)
    if size <= 48:
        return Augment(prepare, jitter=0.2)
    # Heinsen's 16 of 96.
    return Augment(prepare, jitter=0.2, padding=round(size / 6), edges=True)


# pytest would take the name for a test.
test_transform.__test__ = False  # type: ignore[attr-defined]
