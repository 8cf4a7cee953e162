"""Primary capsules: the output of a convolution, split into vectors."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.minimal_conv import MinimalConv2d
from clustercaps.routing.squash import squash
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import conv_size


class PrimaryCapsules(nn.Module):
    """A convolution whose channels are `types` capsules of dimension `dim` at every position.

    The entries of a capsule are channels of one position. Ports that reshape without moving the
    channel axis to the end mix neighbouring pixels instead.

    Args:
        map_chans: Channels of the input feature maps.
        types: Capsules per position.
        dim: Capsule dimension.
        kernel_size: Kernel size of the convolution.
        stride: Stride of the convolution.
        padding: Zero padding of the convolution.
        squash: Squash function.
    """

    def __init__(
        self,
        map_chans: int,
        types: int = 32,
        dim: int = 8,
        kernel_size: int = 9,
        stride: int = 2,
        padding: int = 0,
        squash: Callable[[Tensor], Tensor] = squash,
    ) -> None:
        super().__init__()
        for name, value in (("types", types), ("dim", dim)):
            at_least(name, value, 1)
        self.types, self.dim, self.squash = types, dim, squash
        self.conv = MinimalConv2d(map_chans, types * dim, kernel_size, stride, padding)

    def count(self, in_size: int | tuple[int, int], layer: str = "primary capsules") -> int:
        """Number of capsules for feature maps of this size; `layer` is the name in errors."""
        conv = self.conv
        height, width = conv_size(
            in_size, conv.kernel_size[0], conv.stride[0], int(conv.padding[0]), layer
        )
        return self.types * height * width

    def forward(
        self, maps: Float[Tensor, "batch map_chans height width"]
    ) -> Float[Tensor, "batch capsules dim"]:
        """Feature maps to capsules, ordered by type, then row and column."""
        return self.cut(self.conv(maps))

    def cut(
        self, channels: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch capsules dim"]:
        """Split the output of the convolution into capsules."""
        places = channels.unflatten(1, (self.types, self.dim)).permute(0, 1, 3, 4, 2)
        return self.squash(places.flatten(1, 3))
