"""Capsule layers with inverted attention that compute votes for one window position at a time.

The votes of a convolutional layer are its largest tensor by far: 29 MB for one CIFAR-10 image in
the first layer. Children are independent of each other, so the sum over them can be computed one
window position at a time. Equal coupling coefficients need no votes: they are a convolution.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from clustercaps.routing.inverted_attention import attend, norm_capsules
from clustercaps.utils.errors import at_least
from clustercaps.utils.precision import wide_dtype, without_autocast
from clustercaps.utils.sizes import conv_size
from clustercaps.utils.tracing import plain_only

Children = Float[Tensor, "batch in_types in_dim in_height in_width"]
Parents = Float[Tensor, "batch types dim height width"]


class CapsuleLayerNorm(nn.LayerNorm):
    """Layer norm of every capsule [B, types, dim, H, W]; the identity for dimension 1."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, elementwise_affine=dim > 1)

    def forward(self, input: Tensor) -> Tensor:
        """Capsules to capsules."""
        return norm_capsules(input, self.weight, self.bias, self.eps)


class InvertedCapsules2d(nn.Module):
    """Parents at every position, from the children in a window: no padding, shared weights.

    Parent types compete for each child of a window. A child in several windows is routed
    independently in each of them.

    Args:
        in_types: Child capsule types.
        in_dim: Dimension of a child.
        types: Parent capsule types.
        dim: Dimension of a parent.
        kernel_size: Side of the window.
        stride: Stride of the window.
        matrix: Whether capsules are square matrices, and votes their products with learned
            matrices; otherwise capsules are vectors.
        checkpoint: Recompute votes in the backward pass instead of storing them, which takes a
            fraction of the memory and is not slower: votes are computed faster than they are read.
    """

    def __init__(
        self,
        in_types: int,
        in_dim: int,
        types: int,
        dim: int,
        kernel_size: int = 1,
        stride: int = 1,
        matrix: bool = True,
        checkpoint: bool = True,
    ) -> None:
        super().__init__()
        sizes = {"in_types": in_types, "types": types, "in_dim": in_dim, "dim": dim}
        for name, value in {**sizes, "kernel_size": kernel_size, "stride": stride}.items():
            at_least(name, value, 1)
        side = math.isqrt(dim)
        if matrix and (side * side != dim or in_dim != dim):
            raise ValueError(
                f"matrix capsules need in_dim = dim, a square number; got in_dim={in_dim} and "
                f"dim={dim}; use 4, 9, 16 ..., or vector capsules (matrix=False)"
            )
        # A vector is a matrix of one row.
        self.rows = side if matrix else 1
        self.in_types, self.types, self.dim = in_types, types, dim
        self.kernel_size, self.stride, self.checkpoint = kernel_size, stride, checkpoint
        within, out = in_dim // self.rows, dim // self.rows
        self.weight = nn.Parameter(
            torch.empty(kernel_size, kernel_size, in_types, within, types, out)
        )
        nn.init.normal_(self.weight, std=math.sqrt(types / (within * in_types * kernel_size**2)))
        self.norm = CapsuleLayerNorm(dim)

    def forward(
        self, children: Children, query: Parents | None = None, iterations: int = 1
    ) -> Parents:
        """Children to parents.

        Args:
            children: Child capsules.
            query: Parents for the first iteration; None for equal coupling coefficients.
            iterations: Updates of the parents from the same children.
        """
        for _ in range(iterations):
            total = self.equal_shares(children) if query is None else self.attend(children, query)
            query = self.norm(total)
        assert query is not None
        return query

    def equal_shares(self, children: Children) -> Parents:
        """Sum of the votes with equal coupling coefficients: a convolution."""
        batch = children.shape[0]
        rows = children.unflatten(2, (self.rows, -1)).transpose(1, 2).flatten(2, 3).flatten(0, 1)
        kernel = self.weight.permute(4, 5, 2, 3, 0, 1).flatten(2, 3).flatten(0, 1)
        total = F.conv2d(rows, kernel / self.types, stride=self.stride)
        # Explicit sizes: they cannot be inferred for a batch of 0.
        total = total.unflatten(0, (batch, self.rows)).unflatten(2, (self.types, -1))
        return total.transpose(1, 2).flatten(2, 3)

    def attend(self, children: Children, query: Parents) -> Parents:
        """Sum of the votes, weighted by agreement with `query`, one window position at a time."""
        total = torch.zeros_like(query)
        for piece, weight in self._places(children, query.shape[3:]):
            if self.checkpoint and torch.is_grad_enabled() and not plain_only():
                part = checkpoint(self._attend_place, piece, weight, query, use_reentrant=False)
            else:
                part = self._attend_place(piece, weight, query)
            total = total + part
        return total

    def cast_votes(
        self, children: Children
    ) -> Float[Tensor, "batch children types dim height width"]:
        """All votes at once; children are ordered by type, then row and column of the window."""
        size = conv_size(list(children.shape[3:]), self.kernel_size, self.stride)
        places = [self._vote(*place) for place in self._places(children, torch.Size(size))]
        return torch.stack(places, 2).flatten(1, 2)

    def _places(self, children: Tensor, size: torch.Size) -> Iterator[tuple[Tensor, Tensor]]:
        """Children and weights of every window position, for all positions of the parents."""
        height, width = (self.stride * (side - 1) + 1 for side in size)
        for row in range(self.kernel_size):
            rows = children[:, :, :, row : row + height : self.stride]
            for column in range(self.kernel_size):
                piece = rows[..., column : column + width : self.stride]
                yield piece, self.weight[row, column]

    def _vote(self, piece: Tensor, weight: Tensor) -> Tensor:
        matrices = piece.unflatten(2, (self.rows, -1))
        # In memory the votes are [B, types, H, W, children, dim]: both products of the routing then
        # need no copy, and autograd saves them only once.
        votes = torch.einsum("bnaxhw,nxmy->bmhwnay", matrices, weight).flatten(5, 6)
        return votes.permute(0, 4, 1, 5, 2, 3)

    def _attend_place(self, piece: Tensor, weight: Tensor, query: Tensor) -> Tensor:
        votes = self._vote(piece, weight)
        wide = wide_dtype(query.dtype)
        # As in every routing, no softmax in half precision.
        with without_autocast(query):
            return attend(votes.to(wide), query.to(wide))[0].to(query.dtype)

    def extra_repr(self) -> str:
        """Sizes."""
        kernel, _, in_types, _, types, _ = self.weight.shape
        return f"{in_types} -> {types}x{self.dim}, kernel_size={kernel}, stride={self.stride}"


class InvertedCapsules(InvertedCapsules2d):
    """Fully connected layer: every child of every position has its own matrices.

    Children are ordered by type, then row and column. The arguments are those of
    `InvertedCapsules2d` without the window: `in_types` counts the children of all positions.
    """

    def forward(
        self, children: Children, query: Parents | None = None, iterations: int = 1
    ) -> Parents:
        """Children [B, types, dim, H, W] to parents [B, parents, dim, 1, 1]."""
        flat = children.permute(0, 1, 3, 4, 2).flatten(1, 3)[..., None, None]
        return super().forward(flat, query, iterations)
