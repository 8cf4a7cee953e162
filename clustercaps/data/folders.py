"""Folders of class subfolders, read image by image in worker processes: ImageNet and your own."""

import copy
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from clustercaps.data.augment import crop_windows, resized_crops
from clustercaps.data.catalogue import STREAMED, is_streamed
from clustercaps.data.errors import DataError, need
from clustercaps.data.files import reason
from clustercaps.data.image_files import image_side, read_image
from clustercaps.data.split import validation_split
from clustercaps.utils.errors import unknown
from clustercaps.utils.files import data_folder
from clustercaps.utils.image_files import EXTENSIONS
from clustercaps.utils.progress import progress

SPLIT_FOLDERS = {"train": ("train",), "test": ("test", "val", "validation")}


class FolderImages(Dataset[tuple[Tensor, int]]):
    """Images in class subfolders, resized, cropped and flipped while they are read.

    For a given seed, image i of epoch e is the same for any number of workers.

    Args:
        folder: folder with one subfolder per class.
        class_names: label order; the sorted names of the subfolders by default.
        resize: height and width to which every image is resized.
        crop: height and width of the crop.
        augment: random crop, and flip with probability 1/2; otherwise the centre crop.
        seed: seed of the random part.
        flip: whether augmented images are flipped.
        crop_area: smallest area of a random crop, as a fraction of the image; crops of random area
            are resized. 0 for crops that are not.

    Attributes:
        labels: class index of each image.
        class_names: names of the classes.
        num_classes: number of classes.
    """

    def __init__(
        self,
        folder: Path | str,
        class_names: tuple[str, ...] | None = None,
        resize: int = 256,
        crop: int = 224,
        augment: bool = False,
        seed: int = 0,
        flip: bool = True,
        crop_area: float = 0.0,
    ) -> None:
        if not 1 <= crop <= resize:
            raise ValueError(f"crop must be between 1 and resize, got {crop} and {resize}")
        need("PIL.Image", "read image files")
        self.folder = Path(folder)
        present = class_folders(self.folder)
        self.class_names = present if class_names is None else class_names
        extra = sorted(set(present) - set(self.class_names))
        if extra:
            raise DataError(
                f"{self.folder / extra[0]}: not a class of the training folder; its classes: "
                f"{', '.join(self.class_names[:10])}"
            )
        self.resize, self.crop, self.augment, self.seed = resize, crop, augment, seed
        self.flip, self.crop_area = flip, crop_area
        names: list[bytes] = []
        labels: list[int] = []
        with progress(f"{self.folder}: listing", len(present), " classes") as bar:
            for name in present:
                files = _images_in(self.folder / name)
                names += [os.fsencode(file) for file in files]
                labels += [self.class_names.index(name)] * len(files)
                bar.update(1)
        # One array, not a list: workers would copy a list of a million strings when they read it.
        self._names = np.array(names)
        self.labels = torch.tensor(labels)
        # Shared memory, so that persistent workers see the next epoch.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch for the random numbers, also in running workers."""
        self._epoch.fill_(epoch)

    def subset(self, indices: Tensor) -> "FolderImages":
        """Return the selected images, in this order."""
        part = copy.copy(self)
        part._names, part.labels = self._names[indices.numpy()], self.labels[indices]
        return part

    def unaugmented(self) -> "FolderImages":
        """Return the same images with centre crops, as for testing."""
        part = copy.copy(self)
        part.augment = False
        return part

    def path(self, index: int) -> Path:
        """File of an image."""
        name = os.fsdecode(bytes(self._names[index]))
        return self.folder / self.class_names[int(self.labels[index])] / name

    def file_names(self) -> bytes:
        """Names of all files, without their folders, to compare datasets."""
        return self._names.tobytes()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = read_image(self.path(index), self.resize)
        room = self.resize - self.crop
        top, left, mirrored = room // 2, room // 2, False
        if self.augment:
            chance = random.Random(f"{self.seed}/{int(self._epoch)}/{index}")
            top, left = chance.randint(0, room), chance.randint(0, room)
            mirrored = chance.random() < 0.5 and self.flip
        if self.augment and self.crop_area:
            numbers = torch.tensor([[chance.random() for _ in range(4)]], dtype=torch.float64)
            window = crop_windows(self.crop_area, numbers)
            crop = resized_crops(pixels[None].float(), window, self.crop, self.crop)[0]
            pixels = crop.round().to(torch.uint8)
        else:
            pixels = pixels[:, top : top + self.crop, left : left + self.crop]
        if mirrored:
            pixels = pixels.flip(-1)
        return pixels.contiguous(), int(self.labels[index])


def unreadable(folder: FolderImages) -> Iterator[DataError]:
    """Decode every image of a folder, on all cores; yields the error of each that is broken."""

    def attempt(index: int) -> DataError | None:
        try:
            read_image(folder.path(index), 1)
        except DataError as error:
            return error
        return None

    # Threads are enough: Pillow decodes without the lock of the interpreter.
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        progress(f"{folder.folder}: decoding", len(folder), " images") as bar,
    ):
        for start in range(0, len(folder), 1000):
            part = range(start, min(start + 1000, len(folder)))
            for error in pool.map(attempt, part):
                bar.update(1)
                if error is not None:
                    yield error


def open_folder(
    name: str,
    split: str = "train",
    data_dir: Path | str | None = None,
    resize: int | None = None,
    crop: int = 224,
    seed: int = 0,
) -> FolderImages:
    """Open a split of `imagenet` or `folder:PATH`.

    Args:
        name: `imagenet`, found in `data_dir` or in `imagenet` in the cache folder, or
            `folder:PATH`.
        split: `train` (random crop and flip), `test` (the folder `test`, `val` or `validation`;
            centre crop), or `all` (class folders directly under the path; centre crop). If the path
            contains class folders directly, a fifth of each class is the test split, always the
            same one, and the rest the training split.
        data_dir: the folder that contains `train` and `val` of ImageNet.
        resize: height and width to which images are resized; `size_before_crop(crop)` by default.
        crop: height and width of the crop.
        seed: seed of the random crop and flip.
    """
    if split not in ("train", "test", "all"):
        raise ValueError(f"split must be 'train', 'test' or 'all', got {split!r}")
    root = folder_root(name, data_dir)
    folder, train = (root, None) if split == "all" else _split_folder(root, split)
    classes = class_folders(train) if train is not None else None
    resize = size_before_crop(crop) if resize is None else resize
    images = FolderImages(folder, classes, resize, crop, split == "train", seed)
    if split == "all" or is_divided(root):
        return images
    kept, held_out = validation_split(images.labels)
    if not len(held_out):
        raise DataError(
            f"{root}: too few images to hold out a fifth of a class for testing; expected at least "
            "3 of a class"
        )
    return images.subset(kept if split == "train" else held_out)


def folder_root(name: str, data_dir: Path | str | None = None) -> Path:
    """The folder of a streamed dataset."""
    if not is_streamed(name):
        raise KeyError(unknown("streamed dataset", name, [STREAMED, "folder:PATH"]))
    root = Path(data_dir or data_folder() / STREAMED)
    if name.startswith("folder:"):
        root = Path(name.removeprefix("folder:"))
    return root.expanduser()


def is_divided(root: Path) -> bool:
    """Whether a folder has subfolders for training and testing, and not classes directly."""
    present = _folders_in(root)
    return any(name in present for names in SPLIT_FOLDERS.values() for name in names)


def largest_side(name: str) -> int | None:
    """The longest side of the first training image of every class; None if they cannot be read."""
    try:
        images = open_folder(name, "train")
        first = [int((images.labels == label).nonzero()[0]) for label in images.labels.unique()]
        return max(image_side(images.path(number)) for number in first)
    except DataError:
        # What is wrong is said when the folder is opened.
        return None


def count_images(name: str) -> int | None:
    """The number of training images of a folder; None if it cannot be read."""
    try:
        return len(open_folder(name, "train"))
    except DataError:
        # What is wrong is said when the folder is opened.
        return None


def size_before_crop(crop: int) -> int:
    """The side to which images are resized before a crop: 256 for 224, and in proportion."""
    return round(crop * 256 / 224)


def _split_folder(root: Path, split: str) -> tuple[Path, Path | None]:
    """Folder of a split, and the training folder, which determines the class indices."""
    present = _folders_in(root)
    named = {key: [f for f in folders if f in present] for key, folders in SPLIT_FOLDERS.items()}
    if not any(named.values()):
        return root, None
    if not named[split]:
        wanted = " or ".join(SPLIT_FOLDERS[split])
        # Reading the class folders themselves here would test on the training images.
        raise DataError(
            f"{root}: no subfolder {wanted} for the {split} split; add it, or pass a folder that "
            "contains only the classes, of which a fifth is then held out for testing"
        )
    train = root / named["train"][0] if named["train"] else None
    return root / named[split][0], train


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the names of the class subfolders, sorted."""
    names = tuple(sorted(_folders_in(folder)))
    if not names:
        raise DataError(f"{folder}: no class subfolders; expected {folder / 'CLASS' / 'IMAGE'}")
    return names


def _folders_in(folder: Path) -> list[str]:
    return [entry.name for entry in _entries(folder) if entry.is_dir()]


def _images_in(folder: Path) -> list[str]:
    files = [e.name for e in _entries(folder) if os.path.splitext(e.name)[1].lower() in EXTENSIONS]
    if not files:
        raise DataError(f"{folder}: no images; expected files such as .jpg or .png")
    return sorted(files)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{folder}: cannot read folder ({reason(error)})") from error
