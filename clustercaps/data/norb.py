"""The matrices of smallNORB and of rendered objects, and what can be checked without a checksum."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustercaps.data.errors import DataError
from clustercaps.data.formats import read_norb
from clustercaps.data.sources import Content

# Images and labels.
Arrays = tuple[NDArray[Any], NDArray[Any]]
# And what else is known of every image.
Decoded = tuple[Arrays, dict[str, NDArray[Any]]]

# Columns of the info matrix: name and largest code.
COLUMNS = (("instance", 29), ("elevation", 8), ("azimuth", 34), ("lighting", 5))


def decode_norb(files: list[Content]) -> Decoded:
    """Images, labels and viewpoint codes of the three matrices of a split."""
    dat, cat, inf = files
    pixels = read_norb(dat.data, dat.path, 4, "uint8")
    labels = read_norb(cat.data, cat.path, 1, "int32")
    table = read_norb(inf.data, inf.path, 2, "int32")
    if table.shape != (len(pixels), 4):
        raise DataError(f"{inf.path}: shape {table.shape}, expected ({len(pixels)}, 4)")
    columns = {}
    for column, (key, largest) in enumerate(COLUMNS):
        codes: NDArray[Any] = table[:, column]
        if len(codes) and not (codes.min() >= 0 and codes.max() <= largest):
            raise DataError(
                f"{inf.path}: {key} codes {codes.min()} to {codes.max()}, expected 0 to {largest}"
            )
        columns[key] = codes
    return (pixels, labels), columns


def check_views(
    instances: tuple[int, ...],
    pixels: NDArray[Any],
    labels: NDArray[Any],
    codes: dict[str, NDArray[Any]],
    source: str,
) -> None:
    """Raise an error unless every object is there once in every view, and no image is blank.

    Args:
        instances: instance numbers of the objects.
        pixels: images of a whole split.
        labels: their classes.
        codes: their viewpoints, by name.
        source: for messages.
    """
    found = set(np.unique(codes["instance"]).tolist())
    if found != set(instances):
        raise DataError(f"{source}: objects {sorted(found)}, expected {sorted(instances)}")
    views = np.unique(np.stack([labels, *(codes[name] for name, _ in COLUMNS)]), axis=1)
    if views.shape[1] != len(labels):
        twice = len(labels) - views.shape[1]
        raise DataError(f"{source}: {twice:,} images repeat the object and view of another")
    flat = pixels.reshape(len(pixels), -1)
    blank = int((flat.min(1) == flat.max(1)).sum())
    if blank:
        raise DataError(f"{source}: {blank:,} images of a single grey level: damaged files")
