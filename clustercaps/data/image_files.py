"""Read an image file of any format and colour mode as a tensor."""

from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from clustercaps.data.errors import DataError, need
from clustercaps.utils.image_files import read_rgb


def read_image(path: Path, size: int) -> UInt8[Tensor, "3 size size"]:
    """Read an image file of any size and colour mode as uint8 [3, size, size]."""
    try:
        return torch.from_numpy(read_rgb(path, size)).permute(2, 0, 1)
    except ValueError as error:
        raise DataError(str(error)) from error


def image_side(path: Path) -> int:
    """The longer side of an image file, from its header."""
    module = need("PIL.Image", "read image files")
    try:
        with module.open(path) as image:
            return max(image.size)
    # Pillow raises many types of exceptions for a corrupt file.
    except Exception as error:
        raise DataError(
            f"{path}: not a readable image ({error}); repair or remove the file"
        ) from error
