"""Folders that fit into memory, decoded once."""

import os
from concurrent.futures import ThreadPoolExecutor

import torch

from clustercaps.data.folders import FolderImages
from clustercaps.data.image_files import read_image
from clustercaps.data.images import Images
from clustercaps.utils.progress import progress


def decoded_bytes(folder: FolderImages) -> int:
    """The memory that `decode` needs."""
    return len(folder) * 3 * _side(folder) ** 2


def decode(folder: FolderImages, name: str) -> Images:
    """Read all images of a folder, on all cores; raises the error of the first that is broken.

    Images for training have the size before the crop, so that every epoch can crop them at random;
    others have the size of the centre crop.

    Args:
        folder: the images.
        name: name of the dataset.
    """
    side = _side(folder)
    pixels = torch.empty(len(folder), 3, side, side, dtype=torch.uint8)

    def read(index: int) -> None:
        if folder.augment:
            pixels[index] = read_image(folder.path(index), folder.resize)
        else:
            pixels[index] = folder[index][0]

    # Threads are enough: Pillow decodes without the lock of the interpreter.
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        progress(f"{folder.folder}: decoding", len(folder), " images") as bar,
    ):
        for start in range(0, len(folder), 1000):
            for _ in pool.map(read, range(start, min(start + 1000, len(folder)))):
                bar.update(1)
    meta = {
        "name": name,
        "class_names": folder.class_names,
        "num_classes": folder.num_classes,
        "source": str(folder.folder),
    }
    return Images(pixels, folder.labels, meta)


def _side(folder: FolderImages) -> int:
    return folder.resize if folder.augment else folder.crop
