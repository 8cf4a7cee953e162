"""Small greyscale images as text, so that figures can be drawn from the results alone."""

import base64
import lzma
import math

import torch
from jaxtyping import Float
from torch import Tensor

# Grey levels that are kept: about as many as the eye can distinguish in a small image.
LEVELS = 16


def pack(pictures: Float[Tensor, "*series height width"]) -> str:
    """Encode images with values in 0 to 1 as text, such as "19x28x28:...", with 16 grey levels.

    Args:
        pictures: Images, with any number of axes before height and width.
    """
    levels = (pictures.clamp(0, 1) * (LEVELS - 1)).round().to(torch.uint8).cpu()
    shape = "x".join(map(str, levels.shape))
    content = lzma.compress(levels.numpy().tobytes(), preset=9)
    return f"{shape}:{base64.b85encode(content).decode()}"


def unpack(text: str) -> Float[Tensor, "*series height width"]:
    """Decode the text of `pack`.

    Args:
        text: Text from `pack`.
    """
    start, _, rest = text.partition(":")
    shape = [int(side) for side in start.split("x")]
    content = bytearray(lzma.decompress(base64.b85decode(rest)))
    if len(content) != math.prod(shape):
        raise ValueError(
            f"expected {math.prod(shape)} pixels in packed images, got {len(content)}; "
            "measure again with --fresh"
        )
    return torch.frombuffer(content, dtype=torch.uint8).view(shape) / (LEVELS - 1)


def mosaic(
    pictures: Float[Tensor, "rows columns height width"],
) -> Float[Tensor, "all_height all_width"]:
    """Tile rows and columns of images into one image.

    Args:
        pictures: The images.
    """
    return pictures.permute(0, 2, 1, 3).flatten(2, 3).flatten(0, 1)
