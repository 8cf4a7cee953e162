"""How children become votes: the learned transformations below every routing.

Axes as in `clustercaps.routing.base`: votes are [B, I, J, D, *positions].
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.errors import at_least


class VectorVotes(nn.Module):
    """One matrix for every pair of child and parent: u_ij = W_ij u_i.

    Args:
        children: Children (I).
        in_dim: Numbers in a child capsule.
        parents: Parents (J).
        dim: Numbers in a vote (D).
        std: Deviation of the first weights. Votes of many children add up, so it is small: with 1
            every squash saturates.
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
                f"expected {self.weight.shape[0]} capsules of {self.weight.shape[3]} numbers, got "
                f"shape {tuple(capsules.shape)}"
            )
        return torch.einsum("ijde,bie->bijd", self.weight, capsules)

    def extra_repr(self) -> str:
        """Sizes."""
        children, parents, dim, in_dim = self.weight.shape
        return f"{children}x{in_dim} -> {parents}x{dim}"
