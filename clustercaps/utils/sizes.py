"""Sizes of images and feature maps."""

from collections.abc import Sequence
from typing import no_type_check

from jaxtyping import Float
from torch import Tensor

from clustercaps.utils.errors import at_least

# One side length for both, or (height, width); JSON turns a tuple into a list.
Size = int | tuple[int, int] | list[int]

ImageBatch = Float[Tensor, "batch in_chans img_height img_width"]


def pair(size: Size) -> tuple[int, int]:
    """A side length as (height, width)."""
    height, width = (size, size) if isinstance(size, int) else size
    at_least("height", height, 1)
    at_least("width", width, 1)
    return height, width


def show_size(size: Size) -> str:
    """A size as text, such as "32x32"."""
    height, width = pair(size)
    return f"{height}x{width}"


# Without runtime type checks: under torch.compile the sides may be symbolic.
@no_type_check
def windows_along(side: int, kernel_size: int, stride: int = 1, padding: int = 0) -> int:
    """Number of positions of a window along one side; 0 or less if it does not fit."""
    return (side + 2 * padding - kernel_size) // stride + 1


def same_margins(side: int, kernel_size: int, stride: int = 1) -> tuple[int, int]:
    """Zeros before and after a side so that ceil(side / stride) windows fit.

    What is uneven goes after it: for windows of 3, stride 2 and even sides one after it and none
    before, where a padding of 1 would read other pixels.
    """
    total = max((-(-side // stride) - 1) * stride + kernel_size - side, 0)
    return total // 2, total - total // 2


def conv_size(
    in_size: Size, kernel_size: Size, stride: int = 1, padding: int = 0, layer: str = ""
) -> tuple[int, int]:
    """Height and width of the output of a convolution; raises an error if it is empty.

    Args:
        in_size: Height and width of the input.
        kernel_size: Kernel size of the convolution.
        stride: Stride of the convolution.
        padding: Zero padding on each side.
        layer: Name of the layer in the error message.
    """
    height, width = (
        windows_along(side, kernel, stride, padding)
        for side, kernel in zip(pair(in_size), pair(kernel_size), strict=True)
    )
    if height < 1 or width < 1:
        raise ValueError(
            f"feature maps of {show_size(in_size)} are too small for a {show_size(kernel_size)} "
            f"convolution{layer and f' ({layer})'}; use larger images (img_size), or smaller "
            "strides or kernels"
        )
    return height, width


def map_sizes(
    img_size: tuple[int, int], convs: Sequence[tuple[int, int, int]]
) -> list[tuple[int, int]]:
    """Sizes of the image and of the feature maps after every convolution; none may be empty.

    Args:
        img_size: Height and width of the image.
        convs: Kernel size, stride and padding of every convolution.
    """
    sizes = [img_size]
    for number, conv in enumerate(convs, 1):
        height, width = (windows_along(side, *conv) for side in sizes[-1])
        if height < 1 or width < 1:
            raise ValueError(
                f"an image of {show_size(img_size)} is too small: the feature maps are empty after "
                f"layer {number} of {len(convs)}, whose input is {show_size(sizes[-1])}; use at "
                f"least {show_size(smallest_side(convs))}"
            )
        sizes.append((height, width))
    return sizes


def smallest_side(convs: Sequence[tuple[int, int, int]]) -> int:
    """The smallest image side for which the last feature map is not empty."""
    side = 1
    for kernel_size, stride, padding in reversed(convs):
        side = max(1, (side - 1) * stride + kernel_size - 2 * padding)
    return side
