"""Find image files, and read one of any format and colour mode as 8-bit RGB; without torch.

* 8 bits or fewer, palettes, CMYK and YCbCr: as Pillow converts them; 16-bit colour keeps its upper
  eight bits.
* 16-bit grey is divided by 257, so that its range 0 to 65,535 becomes 0 to 255.
* Floating-point pixels must be in 0 to 1. 32-bit integers have no agreed range and are refused.
* Transparent pixels are shown over white; the camera's orientation (EXIF) is applied.
* Of an animation or a file with several pages, the first image counts.
"""

import glob
import re
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from clustercaps.utils.paths import check_input

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
)
# Formats whose plain mode "I" holds 16 bits: older versions of Pillow have no other mode for it.
SIXTEEN_BITS = ("PNG", "PPM")
ORIENTATION = 0x0112


def find_images(patterns: Sequence[str]) -> list[Path]:
    """The image files that match paths, folders and glob patterns."""
    found: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            matches = [p for p in sorted(path.rglob("*")) if p.suffix.lower() in EXTENSIONS]
        elif path.exists():
            matches = [path]
        else:
            matches = [Path(p) for p in sorted(glob.glob(pattern, recursive=True))]
        if not matches:
            raise FileNotFoundError(f"no image at {pattern}; pass files, folders or glob patterns")
        found += matches
    return found


def read_rgb(path: Path, size: int) -> UInt8[np.ndarray, "size size 3"]:
    """Read an image file, resized to a square (bilinear, aspect ratio not kept)."""
    try:
        from PIL import Image as module
    except ImportError as error:
        raise ValueError(
            "the package pillow is needed to read image files: pip install 'clustercaps[train]'"
        ) from error
    try:
        check_input(path)
        blob = path.read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ValueError(f"{path}: cannot read file ({why})") from error
    try:
        # Pillow skips the checksums of a PNG when it decodes it.
        with module.open(BytesIO(blob)) as image:
            image.verify()
        with module.open(BytesIO(blob)) as image:
            upright = _upright(image, module)
            square = _rgb(upright).resize((size, size), module.Resampling.BILINEAR)
    except UnusablePixels as error:
        raise ValueError(f"{path}: {error}") from None
    # Pillow raises many types of exceptions for a corrupt file.
    except Exception as error:
        # It names the buffer, which says nothing to a reader.
        why = re.sub(r" <_io.*?>", "", " ".join(str(error).split())) or type(error).__name__
        raise ValueError(f"{path}: not a readable image ({why})") from error
    return np.array(square)


class UnusablePixels(ValueError):
    """Pixels whose range is not known."""


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
            raise UnusablePixels(
                f"floating-point pixels from {values.min():g} to {values.max():g}, expected 0 to 1;"
                " scale them, or save them with 8 or 16 bits"
            )
        return _from_grey(values.astype(np.float64))
    if image.mode == "I":
        raise UnusablePixels(
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
