"""Zero padding as TensorFlow's "SAME"."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from clustercaps.utils.sizes import same_margins


def pad_same(
    maps: Float[Tensor, "batch chans in_height in_width"], kernel_size: int, stride: int
) -> Float[Tensor, "batch chans height width"]:
    """Pad feature maps so that a convolution gives ceil(side / stride); odd padding at the end.

    Args:
        maps: Input of the convolution.
        kernel_size: Kernel size of the convolution.
        stride: Stride of the convolution.
    """
    height, width = maps.shape[-2:]
    rows, columns = (same_margins(side, kernel_size, stride) for side in (height, width))
    return F.pad(maps, (*columns, *rows))
