"""Capsule layers with self-routing: the pose of a child alone determines its coupling coefficients.

Hahn, Pyeon and Kim, "Self-routing capsule networks", NeurIPS 2019.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.windows import cut_windows
from clustercaps.routing.self_routing import SelfRouting, parent_activations, self_coupling
from clustercaps.utils.errors import at_least
from clustercaps.utils.precision import wide_dtype, without_autocast

Poses = Float[Tensor, "batch types dim height width"]
Activations = Float[Tensor, "batch types height width"]


class SelfRoutingCapsules2d(nn.Module):
    """Parents at every position from the children in a window, with batch norm of their poses.

    Zero padding adds children with activation 0, which have no effect.

    Args:
        in_types: Child capsule types.
        types: Parent capsule types.
        dim: Dimension of a pose, for children and parents.
        stride: Stride of the 3x3 window.
    """

    def __init__(self, in_types: int, types: int, dim: int, stride: int) -> None:
        super().__init__()
        at_least("stride", stride, 1)
        self.stride = stride
        children = in_types * 9
        self.weight = nn.Parameter(torch.empty(children, types, dim, dim))
        # He's bound, with the parents of a child as its fan-in, as in the released code.
        bound = math.sqrt(6 / (types * dim * dim))
        nn.init.uniform_(self.weight, -bound, bound)
        self.routing = SelfRouting(children, types, dim)
        self.norm = nn.BatchNorm2d(types * dim)

    def forward(
        self,
        poses: Float[Tensor, "batch in_types dim in_height in_width"],
        activations: Float[Tensor, "batch in_types in_height in_width"],
    ) -> tuple[Poses, Activations]:
        """Children to parents."""
        windows = cut_windows(poses, 3, self.stride, padding=1)
        votes = torch.einsum("ijde,biehw->bijdhw", self.weight, windows)
        seen = cut_windows(activations, 3, self.stride, padding=1)
        routed = self.routing(votes, seen, windows)
        capsules = routed.capsules
        normed = self.norm(capsules.flatten(1, 2)).view_as(capsules)
        return normed, routed.activations


class SelfRoutingClasses(nn.Module):
    """Class activations from all capsules of a feature map: only gates, classes have no poses.

    Args:
        children: Number of capsules of the feature map.
        dim: Dimension of a pose.
        num_classes: Number of classes.
    """

    def __init__(self, children: int, dim: int, num_classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(children, num_classes, dim))
        self.bias = nn.Parameter(torch.zeros(children, num_classes))

    def forward(
        self,
        poses: Float[Tensor, "batch children dim"],
        activations: Float[Tensor, "batch children"],
    ) -> Float[Tensor, "batch classes"]:
        """Capsules to the share of the total activation of every class."""
        wide = wide_dtype(poses.dtype)
        # As in every routing, no sums in half precision.
        with without_autocast(poses):
            coupling = self_coupling(poses.to(wide), self.weight, self.bias)
            return parent_activations(coupling, activations.to(wide))
