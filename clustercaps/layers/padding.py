"""Zeros around maps as TensorFlow's "SAME" puts them."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from clustercaps.utils.sizes import same_margins


def pad_same(
    maps: Float[Tensor, "batch chans in_height in_width"], kernel_size: int, stride: int
) -> Float[Tensor, "batch chans height width"]:
    """Pad maps so that a convolution leaves ceil(side / stride); what is uneven goes to the end.

    Args:
        maps: What the convolution will read.
        kernel_size: Side of its window.
        stride: Its step.
    """
    height, width = maps.shape[-2:]
    rows, columns = (same_margins(side, kernel_size, stride) for side in (height, width))
    return F.pad(maps, (*columns, *rows))
