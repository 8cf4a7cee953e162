"""One's own images in a run: folders held in memory or streamed, and images given in Python."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clustercaps import data
from clustercaps.data import FolderImages, Images
from clustercaps.data.arrays import fitted
from clustercaps.data.folders import size_before_crop
from clustercaps.data.memory import decode, decoded_bytes
from clustercaps.training.settings import TrainSettings

GIGABYTE = 10**9


class GivenImages:
    """Images given in Python, in the place of `data.load`.

    Args:
        train: What `data.as_images` takes.
        test: Likewise; without it, a fifth of each class of `train` is held out for testing.
        class_names: Names of the classes, if they are more than numbers.
    """

    def __init__(self, train: Any, test: Any, class_names: Sequence[str] | None = None) -> None:
        whole = data.as_images(train, "train", class_names)
        names = whole.meta["class_names"]
        if len(names) < 2:
            raise data.DataError("train has one class only; a classifier needs at least two")
        self.held_out = test is None
        if test is None:
            kept, held_out = data.validation_split(whole.labels)
            if not len(held_out):
                raise data.DataError("train has too few images to hold out a fifth; pass test")
            self.parts = {"train": whole.subset(kept), "test": whole.subset(held_out)}
            return
        other = data.as_images(test, "test", names)
        if other.pixels.shape[1] != whole.pixels.shape[1]:
            raise data.DataError(
                f"train has {whole.pixels.shape[1]} colour channels, test {other.pixels.shape[1]}"
            )
        self.parts = {"train": whole, "test": other}

    def __call__(self, name: str, split: str, _: str | None) -> Images:
        """The images of a split."""
        images = self.parts[split]
        return replace(images, meta={**images.meta, "name": name, "split": split})


def ready(
    images: Images | FolderImages, settings: TrainSettings, split: str
) -> Images | FolderImages:
    """One's own images as a run uses them: those in memory at the size of the network.

    Images for training are left larger, so that they can be cropped at random.

    Args:
        images: What was opened, after `validate` and limits.
        settings: Settings of the run.
        split: "train" or "test".
    """
    augmented = split == "train" and settings.augment
    if isinstance(images, Images):
        if not data.is_own(settings.data):
            return images
        return fitted(images, size_before_crop(settings.side), None if augmented else settings.side)
    if not augmented:
        images = images.unaugmented()
    images.flip, images.crop_area = settings.flips != "none", settings.crop_area
    if decoded_bytes(images) <= settings.memory_gb * GIGABYTE:
        return decode(images, settings.data)
    if settings.erase or settings.flips == "alternating":
        size = decoded_bytes(images) / GIGABYTE
        raise ValueError(
            f"erase and alternating flips need images in memory, and {settings.data} takes "
            f"{size:.1f} GB; allow that with --memory-gb, or remove them"
        )
    return images
