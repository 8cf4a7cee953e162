"""Visible properties of a digit, computed from its pixels.

All are smooth in the pixel values: a small change of the image changes them only slightly.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from clustercaps.utils.progress import with_bar

PROPERTIES = ("thickness", "slant", "width", "height", "area")
# Length of a uniform bar over the standard deviation of its ink along its length.
BAR = 12**0.5


def measure_properties(
    images: Float[Tensor, "batch 1 height width"],
) -> Float[Tensor, "batch 5"]:
    """Thickness, slant, width, height and area, in this order.

    Area is the sum of the ink in pixels. Thickness is twice the area over the length of the outline
    (the total variation of the ink), which is the width of a long stroke. Slant is the offset of a
    row to the right of the row below it, in pixels. Height is that of a uniform bar with the same
    spread of ink; width is the same after removing the slant.

    Args:
        images: Images, 0 for background and 1 for ink.
    """
    ink = images[:, 0].double()
    rows, columns = (torch.arange(n, dtype=ink.dtype, device=ink.device) for n in ink.shape[1:])
    area = ink.sum((1, 2)).clamp(min=1e-6)

    def mean(values: Tensor) -> Tensor:
        return (ink * values).sum((1, 2)) / area

    y = rows[:, None] - mean(rows[:, None])[:, None, None]
    x = columns - mean(columns.expand(ink.shape[1], -1))[:, None, None]
    var_y = mean(y.square()).clamp(min=1e-6)
    # Rows count downwards; a digit slants to the right if its top does.
    slant = -mean(x * y) / var_y
    upright = x + slant[:, None, None] * y
    width, height = BAR * mean(upright.square()).sqrt(), BAR * var_y.sqrt()
    return torch.stack([2 * area / outline(ink), slant, width, height, area], 1)


def outline(ink: Float[Tensor, "batch height width"]) -> Float[Tensor, " batch"]:
    """Total variation: the sum of the gradient norms, with background around the image.

    Args:
        ink: 0 for background and 1 for ink.
    """
    padded = torch.nn.functional.pad(ink, (1, 1, 1, 1))
    across = padded[:, :-1, 1:] - padded[:, :-1, :-1]
    down = padded[:, 1:, :-1] - padded[:, :-1, :-1]
    return (across.square() + down.square() + 1e-12).sqrt().sum((1, 2))


def effects(
    draw: Callable[[Tensor], Tensor],
    capsules: Float[Tensor, "batch dim"],
    directions: Float[Tensor, "directions *#each dim"],
    scale: Float[Tensor, "5"],
) -> Float[Tensor, "batch directions 5"]:
    """Change of the properties from one end of a direction to the other, in units of `scale`.

    Args:
        draw: Decodes capsules [batch, dim] to images.
        capsules: The capsule of each image's class.
        directions: From the capsule to one end, for all images or [directions, batch, dim] for
            each; the other end is opposite.
        scale: Standard deviation of each property over real images.
    """
    changes = [
        measure_properties(draw(capsules + way)) - measure_properties(draw(capsules - way))
        for way in with_bar(list(directions), "reconstructing")
    ]
    return torch.stack(changes, 1) / scale


def concentration(effect: Float[Tensor, "*any 5"]) -> Float[Tensor, "*any"]:
    """The largest of the five effects over their sum: 1 for a single property, 1/5 if all equal.

    Args:
        effect: Effects, of any sign.
    """
    size = effect.abs()
    return size.amax(-1) / size.sum(-1).clamp(min=1e-12)
