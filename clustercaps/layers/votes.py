"""From child capsules to votes: the learned transformations before a routing.

Axes as in `clustercaps.routing.base`: votes are [B, I, J, D, *positions].
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.utils.errors import at_least


class VectorVotes(nn.Module):
    """One matrix for every pair of child and parent: u_ij = W_ij u_i.

    Args:
        children: Number of children (I).
        in_dim: Dimension of a child capsule.
        parents: Number of parents (J).
        dim: Dimension of a vote (D).
        std: Standard deviation of the initial weights. Many votes are summed, so it is small: with
            1, every squash saturates.
    """

    def __init__(
        self, children: int, in_dim: int, parents: int, dim: int, std: float = 0.1
    ) -> None:
        super().__init__()
        sizes = {"children": children, "in_dim": in_dim, "parents": parents, "dim": dim}
        for name, value in sizes.items():
            at_least(name, value, 1)
        self.weight = nn.Parameter(torch.empty(children, parents, dim, in_dim))
        nn.init.trunc_normal_(self.weight, std=std, a=-2 * std, b=2 * std)

    def forward(
        self, capsules: Float[Tensor, "batch children in_dim"]
    ) -> Float[Tensor, "batch children parents dim"]:
        """Children to their votes."""
        if capsules.shape[1:] != (self.weight.shape[0], self.weight.shape[3]):
            raise ValueError(
                f"expected {self.weight.shape[0]} capsules of dimension {self.weight.shape[3]}, "
                f"got shape {tuple(capsules.shape)}"
            )
        votes: Tensor = torch.einsum("ijde,bie->bijd", self.weight, capsules)
        # einsum puts the children first; routing works image by image.
        return votes.contiguous()

    def extra_repr(self) -> str:
        """Sizes."""
        children, parents, dim, in_dim = self.weight.shape
        return f"{children}x{in_dim} -> {parents}x{dim}"


class MatrixVotes(nn.Module):
    """One small matrix for every pair of child and parent: U_ij = P_i W_ij, P_i the child's pose.

    A pose of `side` x `side` entries is stored row by row. All positions share the weights: without
    positions the layer is fully connected; with those of the parents' feature map, and children
    ordered by (type, window row, window column), it is convolutional.

    Args:
        children: Number of children (I).
        parents: Number of parents (J).
        side: Rows and columns of a pose.
        std: Standard deviation of the initial weights, which must not all be equal: parent types
            that start equal stay equal.
        uniform: Use a uniform distribution for the initial weights instead of a truncated normal.
    """

    def __init__(
        self, children: int, parents: int, side: int = 4, std: float = 0.3, uniform: bool = False
    ) -> None:
        super().__init__()
        for name, value in (("children", children), ("parents", parents), ("side", side)):
            at_least(name, value, 1)
        self.weight = nn.Parameter(torch.empty(children, parents, side, side))
        if uniform:
            nn.init.uniform_(self.weight, -(3**0.5) * std, 3**0.5 * std)
        else:
            nn.init.trunc_normal_(self.weight, std=std, a=-2 * std, b=2 * std)

    def forward(
        self, poses: Float[Tensor, "batch children dim *positions"]
    ) -> Float[Tensor, "batch children parents dim *positions"]:
        """Poses of the children to their votes."""
        children, _, side, _ = self.weight.shape
        if poses.shape[1:3] != (children, side**2):
            raise ValueError(
                f"expected {children} poses of dimension {side**2} ({side}x{side}), got shape "
                f"{tuple(poses.shape)}"
            )
        positions = poses.shape[3:]
        square = poses.reshape(*poses.shape[:2], side, side, positions.numel())
        # The pose is the left factor: r and k are its rows and columns, c the columns of W.
        if square.shape[4] > side:
            # Parents and positions are innermost in memory: long inner loops in the routing. A row
            # of a pose at all positions is one factor, so W is copied for every row.
            by_column = self.weight.permute(0, 3, 1, 2).flatten(1, 2).unsqueeze(1)
            votes = (by_column @ square).unflatten(3, (side, -1)).flatten(2, 3).movedim(2, 3)
        else:
            votes = torch.einsum("birkp,ijkc->bijrcp", square, self.weight).flatten(3, 4)
        return votes.unflatten(4, positions) if positions else votes.squeeze(4)

    def extra_repr(self) -> str:
        """Sizes."""
        children, parents, side, _ = self.weight.shape
        return f"{children} -> {parents}, {side}x{side}"


class CoordinateAddition(nn.Module):
    """Adds the position of its child to every vote, for layers that combine all positions.

    Hinton et al. 2018 add row and column to the first two entries of the last column of the pose.

    Args:
        rows: Value to add for each row of the feature map.
        columns: Value to add for each column of the feature map.
        side: Rows and columns of a pose.
        indices: Entries of the flat pose for row and column; 3 and 7 for 4x4 by default.
    """

    offset: Tensor

    def __init__(
        self,
        rows: Sequence[float],
        columns: Sequence[float],
        side: int = 4,
        indices: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.indices = [side - 1, 2 * side - 1] if indices is None else list(indices)
        if len(self.indices) != 2 or not all(0 <= each < side**2 for each in self.indices):
            raise ValueError(
                "coordinates need two indices, for row and column, below "
                f"{side**2} (poses are {side}x{side}), got {self.indices}"
            )
        offset = torch.zeros(side**2, len(rows), len(columns))
        offset[self.indices[0]] += torch.tensor(rows).unsqueeze(1)
        offset[self.indices[1]] += torch.tensor(columns).unsqueeze(0)
        self.register_buffer("offset", offset, persistent=False)

    def forward(
        self, votes: Float[Tensor, "batch children parents dim height width"]
    ) -> Float[Tensor, "batch children parents dim height width"]:
        """Votes with coordinates added."""
        return votes + self.offset.to(votes.dtype)

    def extra_repr(self) -> str:
        """Indices of the coordinates."""
        return f"indices={self.indices}"


def receptive_centres(
    count: int, img_side: int, layers: Sequence[tuple[int, int]], scale: float = 0.01
) -> list[float]:
    """Centres of the receptive fields of a feature map, relative to the centre of the image.

    Args:
        count: Positions along one side of the feature map.
        img_side: The same side of the image.
        layers: Kernel size and stride of the preceding layers, without padding.
        scale: Scale of a pixel; the authors divide by 100.
    """
    step, first = 1, 0.0
    for kernel_size, stride in layers:
        first += (kernel_size - 1) / 2 * step
        step *= stride
    return [scale * (first + step * place - img_side / 2) for place in range(count)]
