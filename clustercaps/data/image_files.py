"""Read an image file of any format and colour mode as 8-bit RGB.

* 8 bits or fewer, palettes, CMYK and YCbCr: as Pillow converts them; 16-bit colour keeps its upper
  eight bits.
* 16-bit grey is divided by 257, so that its range 0 to 65,535 becomes 0 to 255.
* Floating-point pixels must be in 0 to 1. 32-bit integers have no agreed range and are refused.
* Transparent pixels are shown over white; the camera's orientation (EXIF) is applied.
* Of an animation or a file with several pages, the first image counts.
"""

import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from clustercaps.data.errors import DataError, need
from clustercaps.data.files import read_file

if TYPE_CHECKING:
    from PIL.Image import Image

# Formats whose plain mode "I" holds 16 bits: older versions of Pillow have no other mode for it.
SIXTEEN_BITS = ("PNG", "PPM")
ORIENTATION = 0x0112


def read_image(path: Path, size: int) -> UInt8[Tensor, "3 size size"]:
    """Read an image file of any size and colour mode as uint8 [3, size, size]."""
    module = need("PIL.Image", "read image files")
    blob = read_file(path)
    try:
        # Pillow skips the checksums of a PNG when it decodes it.
        with module.open(BytesIO(blob)) as image:
            image.verify()
        with module.open(BytesIO(blob)) as image:
            upright = _upright(image, module)
            square = _rgb(upright).resize((size, size), module.Resampling.BILINEAR)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    # Pillow raises many types of exceptions for a corrupt file.
    except Exception as error:
        # It names the buffer, which says nothing to a reader.
        why = re.sub(r" <_io.*?>", "", " ".join(str(error).split())) or type(error).__name__
        raise DataError(f"{path}: not a readable image ({why})") from error
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


def image_side(path: Path) -> int:
    """The longer side of an image file, from its header."""
    module = need("PIL.Image", "read image files")
    try:
        with module.open(path) as image:
            return max(image.size)
    except Exception as error:
        raise DataError(f"{path}: not a readable image ({error})") from error


def _upright(image: "Image", module: Any) -> "Image":
    """The image as the camera's orientation says it is to be seen."""
    turns = module.Transpose
    steps = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }
    step = steps.get(image.getexif().get(ORIENTATION, 1))
    if step is None:
        return image
    turned = image.transpose(step)
    # A new image has no format, by which 16 bits are known.
    turned.format = image.format
    return turned


def _rgb(image: "Image") -> "Image":
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in SIXTEEN_BITS):
        return _from_grey(np.asarray(image).astype(np.float64) / 65535)
    if image.mode == "F":
        values = np.asarray(image)
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise DataError(
                f"floating-point pixels from {values.min():g} to {values.max():g}, expected 0 to 1;"
                " scale them, or save them with 8 or 16 bits"
            )
        return _from_grey(values.astype(np.float64))
    if image.mode == "I":
        raise DataError(
            "32-bit or signed integer pixels, whose range is not known; save them with 8 or 16 bits"
        )
    if image.mode.endswith(("A", "a")) or "transparency" in image.info:
        colours = image.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        return Image.alpha_composite(white, colours).convert("RGB")
    return image.convert("RGB")


def _from_grey(values: "np.ndarray[Any, np.dtype[np.float64]]") -> "Image":
    """Grey values in 0 to 1 as an RGB image."""
    from PIL import Image

    return Image.fromarray((values * 255).round().astype(np.uint8)).convert("RGB")
