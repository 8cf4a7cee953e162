"""A nonlinearity for whole capsules: an affine map of the capsule, then tanh.

Choi, Seo, Im and Kang, "Attention routing between capsules" (AR-CapsNet), ICCV workshops 2019:
y_c = tanh(A_c z_c + b_c), with a matrix and a bias for every capsule type.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.utils.errors import at_least

Capsules = Float[Tensor, "batch types dim *positions"]


def capsule_activation(
    capsules: Capsules,
    weight: Float[Tensor, "types dim dim"],
    bias: Float[Tensor, "types dim"],
    residual: Capsules | None = None,
) -> Capsules:
    """tanh(residual + A_c z_c + b_c).

    Args:
        capsules: Capsules of several types, at any positions.
        weight: One matrix per type; rows are outputs.
        bias: One bias per type.
        residual: Added before the tanh, such as the capsules of the layer below.
    """
    shift = bias.view(1, *bias.shape, *[1] * (capsules.ndim - 3))
    changed = torch.einsum("cde,bce...->bcd...", weight, capsules) + shift
    return torch.tanh(changed if residual is None else residual + changed)


class CapsuleActivation(nn.Module):
    """`capsule_activation` with learnable parameters.

    Args:
        types: Number of capsule types.
        dim: Capsule dimension.
    """

    def __init__(self, types: int, dim: int) -> None:
        super().__init__()
        at_least("types", types, 1)
        at_least("dim", dim, 1)
        self.weight = nn.Parameter(torch.empty(types, dim, dim))
        self.bias = nn.Parameter(torch.zeros(types, dim))
        # Glorot's bound, the matrices of all types being one convolution, as in the released code.
        bound = (6 / (dim + types * dim)) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, capsules: Capsules, residual: Capsules | None = None) -> Capsules:
        """Apply `capsule_activation`."""
        return capsule_activation(capsules, self.weight, self.bias, residual)
