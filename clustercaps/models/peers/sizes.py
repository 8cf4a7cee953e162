"""Sizes of maps on their way through a network, with errors that name the layer."""

from clustercaps.layers import show_size
from clustercaps.primary import conv_size


def size_after(
    layer: str,
    in_size: tuple[int, int],
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
) -> tuple[int, int]:
    """Height and width of the maps that a layer leaves.

    Args:
        layer: What the layer is called in the error for maps that are too small.
        in_size: Height and width of the maps below.
        kernel_size: Side of the layer's window.
        stride: Its step.
        padding: Zeros around the maps.
    """
    try:
        return conv_size(in_size, kernel_size, stride, padding)
    except ValueError as error:
        raise ValueError(
            f"the maps vanish at {layer}, which gets {show_size(in_size)} and has windows of "
            f"{kernel_size}x{kernel_size}; use larger images (img_size), or smaller strides or "
            "kernels"
        ) from error
