"""Rotations, flips, shifts and scalings of images and of feature maps of any size.

All are relative to the centre, pad with zeros and interpolate linearly.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample


def amount(name: str) -> float:
    """The number in a transformation's name."""
    return float(name.partition("-")[2])


def is_shift(name: str) -> bool:
    """Whether it shifts by pixels, so that the unit matters."""
    return name.startswith("Shift-")


def transform(
    maps: Float[Tensor, "batch chans height width"], name: str, shift_unit: float = 1.0
) -> Float[Tensor, "batch chans height width"]:
    """Transform images or feature maps.

    Args:
        maps: Images, or channels of a layer.
        name: "R-45" for degrees counter-clockwise, "H-flip", "V-flip", "Shift-2" for pixels right
            and down, "Scale-1.5" for a factor.
        shift_unit: Pixels per unit of shift.
    """
    height, width = maps.shape[-2:]
    if name == "H-flip":
        return maps.flip(-1)
    if name == "V-flip":
        return maps.flip(-2)
    # Maps a position in the result to its source position, in units of half a side.
    inverse = torch.eye(2, 3, dtype=maps.dtype, device=maps.device)
    if is_shift(name):
        pixels = amount(name) * shift_unit
        inverse[0, 2], inverse[1, 2] = -2 * pixels / width, -2 * pixels / height
    elif name.startswith("Scale-"):
        inverse[:, :2] /= amount(name)
    else:
        angle = math.radians(amount(name))
        # Rows count downwards; the factors avoid shear if height and width differ.
        cos, sin = math.cos(angle), math.sin(angle)
        turn = [[cos, -sin * height / width], [sin * width / height, cos]]
        inverse[:, :2] = torch.tensor(turn, dtype=maps.dtype)
    grid = affine_grid(inverse.expand(len(maps), 2, 3), list(maps.shape), align_corners=False)
    return grid_sample(maps, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
