"""Capsule layers with attention routing: votes from convolutions, tanh of whole capsules.

Choi, Seo, Im and Kang, "Attention routing between capsules", ICCV workshops 2019.
"""

import math

from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.activation import CapsuleActivation
from clustercaps.layers.padding import pad_same
from clustercaps.layers.whole_map import WholeMapConv2d
from clustercaps.routing import create_routing


class AttentionCapsules2d(nn.Module):
    """Votes from one convolution per child type, attention over the types, capsule activation.

    Args:
        in_types: Child capsule types.
        in_dim: Dimension of a child.
        types: Parent capsule types.
        dim: Dimension of a parent.
        kernel_size: Height and width of the window; the whole feature map for class capsules.
        stride: Stride of the window.
        same: Pad so that only the stride reduces the size.
        dropout: Dropout rate of the input.
    """

    def __init__(
        self,
        in_types: int,
        in_dim: int,
        types: int,
        dim: int,
        kernel_size: tuple[int, int] = (3, 3),
        stride: int = 1,
        same: bool = True,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.sizes, self.same = (in_types, types, dim), same
        self.dropout = nn.Dropout(dropout)
        # Every child type has its own convolution to the votes for all parents.
        self.vote = WholeMapConv2d(
            in_types * in_dim, in_types * types * dim, kernel_size, stride, groups=in_types
        )
        # Glorot's bound for the convolutions of all child types as one: small initial votes.
        window = kernel_size[0] * kernel_size[1]
        bound = math.sqrt(6 / (window * in_dim + window * in_types * types * dim))
        nn.init.uniform_(self.vote.weight, -bound, bound)
        assert self.vote.bias is not None
        nn.init.zeros_(self.vote.bias)
        self.routing = create_routing("attention", in_types, types, dim)
        self.activation = CapsuleActivation(types, dim)

    def forward(
        self,
        children: Float[Tensor, "batch in_types in_dim in_height in_width"],
        residual: bool = False,
    ) -> Float[Tensor, "batch types dim height width"]:
        """Children to parents; with `residual`, the children are added before the tanh."""
        maps = self.dropout(children).flatten(1, 2)
        if self.same:
            maps = pad_same(maps, self.vote.kernel_size[0], self.vote.stride[0])
        routed = self.routing(self.vote(maps).unflatten(1, self.sizes))
        return self.activation(routed.capsules, children if residual else None)
