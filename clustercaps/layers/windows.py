"""The parents, types and positions, of each child in a convolutional layer.

Every position of the parents' feature map has a window of k x k positions of the children's feature
map, so a child has parents at up to k x k positions: one at a corner, more inside. All of them
compete for the child. A softmax over the parent types of each window separately, as in public
ports, would assign the whole child to every position.

Children of a parent are ordered as (type, window row, window column): votes are
[B, types * k * k, J, D, H', W'], as in `clustercaps.routing.base`.
"""

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import Size, conv_size, pair, windows_along


def cut_windows(
    maps: Float[Tensor, "batch types *inner height width"],
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
) -> Float[Tensor, "batch children *inner out_height out_width"]:
    """Extract windows of k x k positions, for example of poses or activations of the children.

    Args:
        maps: Feature maps of the children.
        kernel_size: Side of a window (k).
        stride: Stride of the windows.
        padding: Zero padding.
    """
    inner = maps.shape[1:-2]
    size = [windows_along(side, kernel_size, stride, padding) for side in maps.shape[-2:]]
    # The gradient of F.unfold is faster than that of strided views or slices.
    windows = F.unfold(maps.flatten(1, -3), kernel_size, padding=padding, stride=stride)
    windows = windows.unflatten(2, size).unflatten(1, (*inner, kernel_size**2))
    return windows.movedim(len(inner) + 1, 2).flatten(1, 2)


class Windows(nn.Module):
    """The windows of a convolutional capsule layer without padding.

    Calling it with logits applies a log-softmax over all parents of each child.

    Args:
        in_size: Height and width of the children's feature map.
        kernel_size: Side of a window (k).
        stride: Stride of the windows.
    """

    child: Tensor
    seats: Tensor

    def __init__(self, in_size: Size, kernel_size: int = 3, stride: int = 1) -> None:
        super().__init__()
        at_least("kernel_size", kernel_size, 1)
        at_least("stride", stride, 1)
        self.in_size, self.kernel_size, self.stride = pair(in_size), kernel_size, stride
        self.out_size = conv_size(self.in_size, kernel_size, stride)
        # With numpy, since the number of seats must be known on the meta device too.
        inside = np.arange(kernel_size)
        rows, columns = (
            inside[:, None] + stride * np.arange(count)[None] for count in self.out_size
        )
        # The child [k, k, H', W'] at each position of each window, as index row * width + column.
        child = (rows[:, None, :, None] * self.in_size[1] + columns[None, :, None, :]).ravel()
        # Not stored in checkpoints: these follow from the sizes.
        self.register_buffer("child", torch.tensor(child), persistent=False)
        self.register_buffer("seats", torch.tensor(self._seats(child)), persistent=False)

    @property
    def places(self) -> int:
        """Positions in a window."""
        return self.kernel_size**2

    def _seats(self, child: NDArray[np.int64]) -> NDArray[np.int64]:
        """Window positions of each child [maximum count, H * W], padded with the last index + 1."""
        height, width = self.in_size
        counts = np.bincount(child, minlength=height * width)
        order = np.argsort(child, kind="stable")
        first = np.cumsum(counts) - counts
        rank = np.arange(len(child)) - first[child[order]]
        seats = np.full((counts.max(), height * width), len(child))
        seats[rank, child[order]] = order
        return seats

    def parents(self) -> Tensor:
        """Number of parent positions of every child [H, W]; 0 outside all windows."""
        return (self.seats < len(self.child)).sum(0).view(self.in_size)

    def expand(
        self, maps: Float[Tensor, "batch types *inner height width"]
    ) -> Float[Tensor, "batch children *inner out_height out_width"]:
        """Extract the windows, for example of poses or activations of the children."""
        if maps.shape[-2:] != self.in_size:
            raise ValueError(
                f"windows were built for feature maps of {self.in_size}, got "
                f"{tuple(maps.shape[-2:])}; build them with this in_size"
            )
        return cut_windows(maps, self.kernel_size, self.stride)

    def forward(
        self, logits: Float[Tensor, "batch children parents out_height out_width"]
    ) -> Float[Tensor, "batch children parents out_height out_width"]:
        """Log-softmax over all parents of each child, types and positions."""
        types = logits.shape[1] // self.places
        # The log-sum for a child in one window [B, types, k * k * H' * W'].
        found = logits.logsumexp(2).unflatten(1, (types, self.places)).flatten(2)
        # Finite, because a child outside all windows would otherwise subtract infinities.
        nobody = found.new_full((*found.shape[:2], 1), torch.finfo(found.dtype).min / 2)
        seats = torch.cat([found, nobody], 2).index_select(2, self.seats.flatten())
        total = seats.unflatten(2, self.seats.shape).logsumexp(2)
        back: Tensor = total.index_select(2, self.child).unflatten(2, (self.places, *self.out_size))
        return logits - back.flatten(1, 2).unsqueeze(2)
