"""Small grey pictures as text, so that a figure of them can be drawn from the results alone."""

import base64
import lzma
import math

import torch
from jaxtyping import Float
from torch import Tensor

# Grey levels that are kept: as many as the eye tells apart in a picture of a few millimetres.
LEVELS = 16


def pack(pictures: Float[Tensor, "*series height width"]) -> str:
    """Pictures of 0 to 1 as text, such as "19x28x28:..."; 16 grey levels remain.

    Args:
        pictures: Any number of them, in any order of axes before height and width.
    """
    levels = (pictures.clamp(0, 1) * (LEVELS - 1)).round().to(torch.uint8).cpu()
    shape = "x".join(map(str, levels.shape))
    content = lzma.compress(levels.numpy().tobytes(), preset=9)
    return f"{shape}:{base64.b85encode(content).decode()}"


def unpack(text: str) -> Float[Tensor, "*series height width"]:
    """The pictures that `pack` made a text of.

    Args:
        text: From `pack`.
    """
    start, _, rest = text.partition(":")
    shape = [int(side) for side in start.split("x")]
    content = bytearray(lzma.decompress(base64.b85decode(rest)))
    if len(content) != math.prod(shape):
        raise ValueError(
            f"expected {math.prod(shape)} pixels in a text of pictures, got {len(content)}; "
            "measure anew with --fresh"
        )
    return torch.frombuffer(content, dtype=torch.uint8).view(shape) / (LEVELS - 1)


def mosaic(
    pictures: Float[Tensor, "rows columns height width"],
) -> Float[Tensor, "all_height all_width"]:
    """Rows and columns of pictures as one.

    Args:
        pictures: What to put side by side.
    """
    return pictures.permute(0, 2, 1, 3).flatten(2, 3).flatten(0, 1)
