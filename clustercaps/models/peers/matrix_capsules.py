"""Base class of networks with matrix capsules: EM, variational Bayes and attentive routing.

Hinton, Sabour and Frosst, "Matrix capsules with EM routing", ICLR 2018: a 5x5 convolution of stride
2, primary capsules from a 1x1 convolution, two convolutional capsule layers with 3x3 windows and
strides 2 and 1, and one capsule per class that receives votes from all positions, with shared
weights and coordinates added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clustercaps.layers.matrix import (
    CapsuleBatchNorm,
    MatrixClassCapsules,
    MatrixConvCapsules,
    PrimaryMatrixCapsules,
)
from clustercaps.layers.votes import CoordinateAddition, receptive_centres
from clustercaps.models.base import ImageClassifier
from clustercaps.routing import Routed, get_routing
from clustercaps.utils.errors import unknown
from clustercaps.utils.sizes import ImageBatch, Size, map_sizes

# Kernel size and stride of the first convolution and of the two convolutional capsule layers.
CONVS = [(5, 2), (3, 2), (3, 1)]


@dataclass(frozen=True)
class MatrixDesign:
    """Choices in which networks with matrix capsules differ.

    Args:
        routing: A name from `clustercaps.list_routings()`.
        routing_options: Arguments of the routing in both convolutional layers.
        class_options: Arguments of the routing to the class capsules.
        vote_std: Standard deviation of the initial vote matrices of the convolutional layers; None
            for Glorot's.
        class_std: The same for the class capsules.
        batch_norm: Apply batch norm to the first convolution, all poses and all logits.
        primary_bias: Whether the convolution to primary capsules has a bias.
        primary_shift: Added to the activation logits of the primary capsules.
    """

    routing: str
    routing_options: Mapping[str, Any]
    class_options: Mapping[str, Any]
    vote_std: float | None = None
    class_std: float | None = None
    batch_norm: bool = False
    primary_bias: bool = False
    primary_shift: float = 0.0


class MatrixCapsNet(ImageClassifier):
    """Convolution, primary capsules, two convolutional capsule layers, class capsules.

    Subclasses define a design and defaults for the other arguments.

    Args:
        design: Routing, initial weights and normalisation.
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Channels of the first convolution (A).
        types: Types of the primary capsules and of the next two layers (B, C, D).
        side: Rows and columns of a pose.
        coordinates: Coordinates added to votes for classes: "centres" of receptive fields in pixels
            / 100 from the centre of the image; "fractions" (k + 1) / (10 F) at position k of F;
            "none".
        coordinate_indices: Entries of the pose for row and column; 3 and 7 for 4x4.
        checkpoint: Route a few images at a time and recompute their votes in the backward pass: a
            fraction of the memory of a large batch, but votes are computed twice.
    """

    min_classes = 1

    def __init__(
        self,
        design: MatrixDesign,
        num_classes: int,
        in_chans: int,
        img_size: Size,
        width: int,
        types: Sequence[int],
        side: int,
        coordinates: str = "centres",
        coordinate_indices: Sequence[int] | None = None,
        checkpoint: bool = False,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        _check(types, coordinates)
        # Sizes of the primary capsules and of the next two layers.
        _, *sizes = map_sizes(self.img_size, [(*conv, 0) for conv in CONVS])
        kernel_size, stride = CONVS[0]
        norm, kind = design.batch_norm, get_routing(design.routing)
        self.conv = nn.Conv2d(in_chans, width, kernel_size, stride, bias=not norm)
        self.conv_norm = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.logits = kind.activations_are_logits
        primary = (kind.takes_activations, design.primary_bias, design.primary_shift)
        self.primary = PrimaryMatrixCapsules(width, types[0], side, *primary)
        self.primary_norm = CapsuleBatchNorm(types[0], affine=True) if norm else None
        shared: dict[str, Any] = {"routing": design.routing, "side": side, "norm": norm}
        shared["checkpoint"] = checkpoint
        self.layers = nn.ModuleList(
            MatrixConvCapsules(
                children,
                parents,
                in_size,
                kernel_size=conv[0],
                stride=conv[1],
                std=design.vote_std,
                options=dict(design.routing_options),
                **shared,
            )
            for children, parents, in_size, conv in zip(
                types[:2], types[1:], sizes[:2], CONVS[1:], strict=True
            )
        )
        self.types, self.side, self.map_size = types, side, sizes[-1]
        self._coordinates, self._indices = coordinates, coordinate_indices
        self._shared = {**shared, "std": design.class_std, "options": dict(design.class_options)}
        self.build_classifier()

    def build_classifier(self) -> tuple[nn.Module, ...]:
        """Create the class capsules."""
        self.classes = MatrixClassCapsules(
            self.types[-1],
            self.num_classes,
            self.map_size,
            coordinates=self._coordinate_addition(),
            **self._shared,
        )
        return (self.classes,)

    def _coordinate_addition(self) -> CoordinateAddition | None:
        if self._coordinates == "none":
            return None
        if self._coordinates == "fractions":
            rows, columns = ([(k + 1) / (10 * n) for k in range(n)] for n in self.map_size)
        else:
            rows, columns = (
                receptive_centres(count, side, CONVS)
                for count, side in zip(self.map_size, self.img_size, strict=True)
            )
        return CoordinateAddition(rows, columns, self.side, self._indices)

    def route(self, images: ImageBatch) -> list[Routed]:
        """Images to the capsules of all layers after the primary ones, with coefficients."""
        self.check_images(images)
        poses, activations = self.primary(self.conv_norm(self.conv(images)).relu())
        if self.primary_norm is not None:
            poses, activations = self.primary_norm(poses, activations)
        if activations is not None and not self.logits:
            activations = activations.sigmoid()
        routed = []
        for layer in (*self.layers, self.classes):
            routed.append(layer(poses, activations))
            poses, activations = self.between(routed[-1].capsules), routed[-1].activations
        return routed

    def between(self, poses: Tensor) -> Tensor:
        """Transform poses before the next layer; the identity by default."""
        return poses

    def forward_features(self, images: ImageBatch) -> Tensor:
        """Images to class capsules [B, num_classes, side^2 + 1]: pose and, last, activation."""
        capsules, activations, _ = self.route(images)[-1]
        if activations is None:
            return capsules
        activations = activations.sigmoid() if self.logits else activations
        return torch.cat([capsules, activations.unsqueeze(2)], 2)

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Class capsules to their activations; with `pre_logits`, flattened."""
        return features.flatten(1) if pre_logits else features[..., -1]


def _check(types: Sequence[int], coordinates: str) -> None:
    if len(types) != 3:
        raise ValueError(
            f"types must be three integers, for primary capsules and two layers, got {list(types)}"
        )
    if coordinates not in ("centres", "fractions", "none"):
        raise KeyError(unknown("coordinates", coordinates, ("centres", "fractions", "none")))
