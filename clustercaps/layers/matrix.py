"""Layers of matrix capsules, with any routing: a capsule is a small matrix with an activation.

Poses are [B, types, side * side, H, W] and activations [B, types, H, W]: probabilities, or logits
for routings with `activations_are_logits`, or None for routings without them.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clustercaps.layers.votes import CoordinateAddition, MatrixVotes
from clustercaps.layers.windows import Windows
from clustercaps.routing import Routed, Routing, create_routing, get_routing
from clustercaps.routing.chunks import CHUNK
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import Size, pair
from clustercaps.utils.tracing import plain_only

Poses = Float[Tensor, "batch types dim height width"]
Activations = Float[Tensor, "batch types height width"]


class PrimaryMatrixCapsules(nn.Module):
    """A 1x1 convolution for poses, and another for activation logits.

    Args:
        map_chans: Channels of the input feature maps.
        types: Capsules per position.
        side: Rows and columns of a pose.
        activations: Whether capsules have activations.
        bias: Whether the convolutions have a bias.
        shift: Added to the logits.
    """

    def __init__(
        self,
        map_chans: int,
        types: int,
        side: int = 4,
        activations: bool = True,
        bias: bool = False,
        shift: float = 0.0,
    ) -> None:
        super().__init__()
        at_least("types", types, 1)
        self.types, self.shift = types, shift
        self.poses = nn.Conv2d(map_chans, types * side**2, 1, bias=bias)
        self.logits = nn.Conv2d(map_chans, types, 1, bias=bias) if activations else None

    def forward(
        self, maps: Float[Tensor, "batch map_chans height width"]
    ) -> tuple[Poses, Activations | None]:
        """Feature maps to poses and logits."""
        logits = None if self.logits is None else self.logits(maps) + self.shift
        return self.poses(maps).unflatten(1, (self.types, -1)), logits


class CapsuleBatchNorm(nn.Module):
    """Batch normalisation of poses and logits, with statistics per capsule type.

    Args:
        types: Capsule types.
        affine: Whether to learn scale and shift.
    """

    def __init__(self, types: int, affine: bool) -> None:
        super().__init__()
        self.poses = nn.BatchNorm1d(types, affine=affine)
        self.logits = nn.BatchNorm1d(types, affine=affine)

    def forward(self, poses: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Poses [B, types, dim, *positions] and logits [B, types, *positions], normalised."""
        return (
            self.poses(poses.flatten(2)).view_as(poses),
            self.logits(logits.unsqueeze(2).flatten(2)).view_as(logits),
        )


class MatrixLayer(nn.Module):
    """Votes and routing of a layer; subclasses define which children vote for a parent.

    Args:
        votes: Computes votes.
        routing: Routes votes to parents.
        norm: Apply batch norm to poses and logits; only for routings that return logits.
        checkpoint: Route a few images at a time, and recompute their votes in the backward pass:
            the votes of all images, by far the largest tensors, are never in memory together.
        positions: Positions of the parents.
    """

    def __init__(
        self,
        votes: MatrixVotes,
        routing: Routing,
        norm: bool,
        checkpoint: bool,
        positions: int = 1,
    ) -> None:
        super().__init__()
        if norm and not routing.activations_are_logits:
            raise ValueError(f"norm=True needs a routing with logits, not {type(routing).__name__}")
        self.votes, self.routing, self.checkpoint = votes, routing, checkpoint
        pairs = routing.children_count * routing.parents_count
        self.votes_per_image = pairs * routing.dim * positions
        # Not recomputed, or running statistics would be updated twice.
        self.norm = CapsuleBatchNorm(routing.parents_count, affine=False) if norm else None

    def forward(self, poses: Poses, activations: Activations | None = None) -> Routed:
        """Children to parents."""
        if not self.routing.takes_activations:
            activations = None
        if self.checkpoint and torch.is_grad_enabled() and not plain_only():
            routed = self._route_apart(poses, activations)
        else:
            routed = self.route(poses, activations)
        if self.norm is None or routed.activations is None:
            return routed
        capsules, logits = self.norm(routed.capsules, routed.activations)
        return routed._replace(capsules=capsules, activations=logits)

    def _route_apart(self, poses: Tensor, activations: Tensor | None) -> Routed:
        """Route a few images at a time, and again in the backward pass."""
        size = max(1, CHUNK // (self.votes_per_image * poses.element_size()))
        some = poses.split(size)
        seen = [None] * len(some) if activations is None else activations.split(size)
        parts = [
            checkpoint(self.route, *each, use_reentrant=False)
            for each in zip(some, seen, strict=True)
        ]
        capsules, scores, coupling = zip(*parts, strict=True)
        joined = None if scores[0] is None else torch.cat(scores)
        return Routed(torch.cat(capsules), joined, torch.cat(coupling))

    def route(self, poses: Tensor, activations: Tensor | None) -> Routed:
        """Compute and route the votes of the children."""
        raise AssertionError("a subclass defines which children vote")


class MatrixConvCapsules(MatrixLayer):
    """Parents at every position of a feature map, from the children in a window; no padding.

    Parents at all positions compete for a child, if the routing supports it.

    Args:
        types: Types of the children.
        parents: Types of the parents.
        in_size: Height and width of the children's feature map.
        routing: A name from `clustercaps.list_routings()`.
        kernel_size: Side of a window.
        stride: Stride of the window.
        side: Rows and columns of a pose.
        std: Standard deviation of the initial weights; None for Glorot uniform.
        options: Arguments of the routing.
        norm: Apply batch norm to poses and logits.
        checkpoint: Route a few images at a time, and recompute their votes in the backward pass.
    """

    def __init__(
        self,
        types: int,
        parents: int,
        in_size: Size,
        routing: str,
        kernel_size: int = 3,
        stride: int = 1,
        side: int = 4,
        std: float | None = None,
        options: dict[str, Any] | None = None,
        norm: bool = False,
        checkpoint: bool = False,
    ) -> None:
        windows = Windows(in_size, kernel_size, stride)
        children = types * windows.places
        options = dict(options or {})
        if get_routing(routing).takes_competition:
            options["compete"] = windows
        super().__init__(
            matrix_votes(children, parents, types, windows.places, side, std),
            create_routing(routing, children, parents, side**2, **options),
            norm,
            checkpoint,
            math.prod(windows.out_size),
        )
        self.windows = windows

    def route(self, poses: Tensor, activations: Tensor | None) -> Routed:
        """Route the votes of all windows."""
        seen = None if activations is None else self.windows.expand(activations)
        routed: Routed = self.routing(self.votes(self.windows.expand(poses)), seen)
        return routed


class MatrixClassCapsules(MatrixLayer):
    """One parent per class, from the children of all positions, which share their weights.

    Args:
        types: Types of the children.
        classes: Number of classes.
        in_size: Height and width of the children's feature map.
        routing: A name from `clustercaps.list_routings()`.
        coordinates: Adds the position to every vote.
        side: Rows and columns of a pose.
        std: Standard deviation of the initial weights; None for Glorot uniform.
        options: Arguments of the routing.
        norm: Apply batch norm to poses and logits.
        checkpoint: Route a few images at a time, and recompute their votes in the backward pass.
    """

    def __init__(
        self,
        types: int,
        classes: int,
        in_size: Size,
        routing: str,
        coordinates: CoordinateAddition | None = None,
        side: int = 4,
        std: float | None = None,
        options: dict[str, Any] | None = None,
        norm: bool = False,
        checkpoint: bool = False,
    ) -> None:
        height, width = pair(in_size)
        places = height * width
        super().__init__(
            matrix_votes(types, classes, types, places, side, std),
            create_routing(routing, types * places, classes, side**2, **options or {}),
            norm,
            checkpoint,
        )
        self.coordinates = coordinates

    def route(self, poses: Tensor, activations: Tensor | None) -> Routed:
        """Route the votes of all positions."""
        votes = self.votes(poses)
        if self.coordinates is not None:
            votes = self.coordinates(votes)
        flat = votes.permute(0, 1, 4, 5, 2, 3).flatten(1, 3)
        routed: Routed = self.routing(flat, None if activations is None else activations.flatten(1))
        return routed


def matrix_votes(
    children: int, parents: int, types: int, places: int, side: int, std: float | None
) -> MatrixVotes:
    """Votes with this standard deviation of the weights, or Glorot's for `places` positions."""
    if std is not None:
        return MatrixVotes(children, parents, side, std)
    glorot = math.sqrt(2 / ((types + parents) * places * side**2))
    return MatrixVotes(children, parents, side, glorot, uniform=True)
