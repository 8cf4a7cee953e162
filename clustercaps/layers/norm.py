"""Normalisation of capsule layers."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.types import Device

from clustercaps.kernels.plain import normalised


class MapNorm(nn.Module):
    """Layer norm over (D, H, W) of each capsule channel; channels share scale and shift.

    Args:
        dim: Capsule dimension.
        map_size: Height and width of the feature map; None for no learnable scale and shift.
    """

    def __init__(
        self,
        dim: int,
        map_size: tuple[int, int] | None,
        eps: float = 1e-5,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = self.bias = None
        if map_size is not None:
            self.weight = nn.Parameter(torch.ones(dim, *map_size, device=device, dtype=dtype))
            self.bias = nn.Parameter(torch.zeros(dim, *map_size, device=device, dtype=dtype))

    def forward(
        self, x: Float[Tensor, "batch channels dim height width"]
    ) -> Float[Tensor, "batch channels dim height width"]:
        """Normalise every channel by its own mean and variance; float32 under autocast."""
        return normalised(x, self.weight, self.bias, self.eps)
