"""The first capsules: what a convolution says at a place, cut into vectors."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.routing.squash import squash
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import conv_size


class PrimaryCapsules(nn.Module):
    """A convolution whose channels are `types` capsules of `dim` numbers at every position.

    The numbers of a capsule are channels of one place. Ports that reshape without moving the
    channel axis to the end make capsules of neighbouring pixels instead.

    Args:
        in_chans: Channels of the maps below.
        types: Capsules at a position.
        dim: Numbers in a capsule.
        kernel_size: Side of the convolution's window.
        stride: Its step.
        padding: Zeros around the maps.
        squash: What bounds the length of a capsule.
    """

    def __init__(
        self,
        in_chans: int,
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
        self.conv = nn.Conv2d(in_chans, types * dim, kernel_size, stride, padding)

    def count(self, in_size: int | tuple[int, int], layer: str = "primary capsules") -> int:
        """Capsules that maps of that size give; `layer` is its name in errors."""
        conv = self.conv
        height, width = conv_size(
            in_size, conv.kernel_size[0], conv.stride[0], int(conv.padding[0]), layer
        )
        return self.types * height * width

    def forward(
        self, maps: Float[Tensor, "batch in_chans height width"]
    ) -> Float[Tensor, "batch capsules dim"]:
        """Maps to capsules, types first, then rows and columns."""
        return self.cut(self.conv(maps))

    def cut(
        self, channels: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch capsules dim"]:
        """What the convolution said, cut into capsules."""
        places = channels.unflatten(1, (self.types, self.dim)).permute(0, 1, 3, 4, 2)
        return self.squash(places.flatten(1, 3))
