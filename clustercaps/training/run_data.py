"""The images of a run, and how they are prepared."""

from dataclasses import replace
from functools import cached_property

from clustercaps import data
from clustercaps.data import Augment, FolderImages, Images, Prepare, Statistics
from clustercaps.data.folders import folder_root, is_divided
from clustercaps.data.transforms import own_transform
from clustercaps.training.batches import Load, class_names, open_split
from clustercaps.training.own_data import GivenImages
from clustercaps.training.settings import TrainSettings


class RunData:
    """Training and test images of a run.

    Args:
        settings: Settings of the run.
        data_dir: Folder with the official files of the dataset, if not the cache.
        load: Reads a dataset into memory; `data.load` by default.
    """

    def __init__(
        self, settings: TrainSettings, data_dir: str | None = None, load: Load | None = None
    ) -> None:
        self.settings, self.load = settings, load
        self.train = open_split(settings, "train", data_dir, load)
        parts = ("test", "novel") if settings.views else ("test",)
        self.tests = {part: open_split(settings, part, data_dir, load) for part in parts}

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their labels."""
        return class_names(self.train)

    @cached_property
    def statistics(self) -> Statistics | None:
        """Mean and standard deviation to normalise with, if they are not the published ones."""
        return data.statistics_of(self.train) if self.settings.normalise == "data" else None

    @property
    def prepare(self) -> Prepare:
        """How test images are prepared."""
        return data.test_transform(
            self.settings.data, size=self.settings.side, statistics=self.statistics
        )

    @property
    def augment(self) -> Augment | Prepare:
        """How training images are prepared: augmented, unless the settings leave that out."""
        settings = self.settings
        if not settings.augment or isinstance(self.train, FolderImages):
            # Streamed images are cropped and flipped while they are read.
            return self.prepare
        if data.is_own(settings.data):
            augment = own_transform(settings.side, self.prepare)
        else:
            augment = data.train_transform(
                settings.data, size=settings.side, statistics=self.statistics
            )
        flip = 0.0 if settings.flips == "none" else augment.flip
        return replace(augment, crop_area=settings.crop_area, erase=settings.erase, flip=flip)

    def describe(self) -> str:
        """One line on images of one's own: how many, where they are, and how they are split."""
        settings, place = self.settings, "read from disk in every epoch"
        in_memory = [p for p in (self.train, *self.tests.values()) if isinstance(p, Images)]
        if isinstance(self.train, Images):
            size = sum(images.pixels.numel() for images in in_memory) / 10**6
            place = f"in memory ({size:,.0f} MB)"
        split = "validation" if settings.validate else "test"
        line = (
            f"{settings.data}: {len(self.train):,} training and {len(self.tests['test']):,} "
            f"{split} images of {len(self.class_names)} classes at "
            f"{settings.side}x{settings.side}, {place}"
        )
        if self._test_is_held_out():
            line += "; there is no test set, so a fifth of each class is held out for testing"
        return line

    def _test_is_held_out(self) -> bool:
        if isinstance(self.load, GivenImages):
            return self.load.held_out
        name = self.settings.data
        return name.startswith("folder:") and not is_divided(folder_root(name))
