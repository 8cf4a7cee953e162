"""The paper's classifiers: five cluster routing layers and a linear head.

M-variants have several capsule channels with one weight cluster each, S-variants have one channel
with several weight clusters.
"""

import math
from typing import Literal, overload

import torch
from jaxtyping import Float
from torch import Tensor

from clustercaps.layers.cluster import Capsules, RoutingTrace
from clustercaps.layers.resnet import ResNetStem
from clustercaps.models.base import LinearClassifier
from clustercaps.models.stack import CapsuleStack
from clustercaps.utils.errors import unknown
from clustercaps.utils.sizes import ImageBatch, Size

STRIDES = (1, 2, 1, 2, 1)
# As in timm; "" is none.
POOLS = ("", "avg", "max", "catavgmax")


class CapsuleNet(LinearClassifier):
    """Five capsule layers, strides 1 2 1 2 1, and a linear classifier on all capsules.

    Args:
        num_classes: Number of classes; 0 for no classifier.
        in_chans: Colour channels.
        img_size: Height and width of the images.
        channels: Capsule channels of every layer (C).
        clusters: Weight clusters per child channel (N).
        votes: Votes in a cluster (K).
        dim: Capsule dimension (D).
        routing: A name from `clustercaps.list_routings()`.
        stem: "none" for pixels as input; "resnet" for a ResNet stem before the capsules, as in the
            paper for ImageNet.
        global_pool: "" for a head on the capsules of all positions, as in the paper; "avg" for one
            on their mean over positions, "max" on their largest entries, "catavgmax" on both. The
            layer norm then has no learnable scale and shift, which are per position, and the
            network accepts images of any size.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        img_size: Size = 32,
        channels: int = 4,
        clusters: int = 1,
        votes: int = 5,
        dim: int = 6,
        routing: str = "cluster",
        stem: str = "none",
        global_pool: str = "",
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        if stem not in ("none", "resnet"):
            raise KeyError(unknown("stem", stem, ("none", "resnet")))
        if global_pool not in POOLS:
            raise KeyError(unknown("global_pool", global_pool, POOLS))
        self.global_pool = global_pool
        self.stem = ResNetStem(in_chans) if stem == "resnet" else None
        self.capsules = CapsuleStack(
            in_dim=in_chans if self.stem is None else self.stem.out_chans,
            img_size=self.img_size if self.stem is None else self.stem.out_size(self.img_size),
            channels=channels,
            clusters=clusters,
            votes=votes,
            dim=dim,
            strides=STRIDES,
            routing=routing,
            any_size=bool(global_pool),
        )
        capsules, positions = self.capsules.out_shape[:2], math.prod(self.capsules.out_shape[2:])
        if global_pool:
            positions = 1
        parts = 2 if global_pool == "catavgmax" else 1
        self.build_head(math.prod(capsules) * positions * parts, positions)

    @overload
    def forward_features(self, images: Tensor, trace: Literal[False] = False) -> Capsules: ...
    @overload
    def forward_features(
        self, images: Tensor, trace: Literal[True]
    ) -> tuple[Capsules, list[RoutingTrace]]: ...
    def forward_features(
        self, images: ImageBatch, trace: bool = False
    ) -> Capsules | tuple[Capsules, list[RoutingTrace]]:
        """Images to the capsules of the last layer [B, C, D, H/4, W/4].

        With `trace`, also returns one `RoutingTrace` per layer.
        """
        self.check_images(images)
        if self.stem is not None:
            images = self.stem(images)
        return self.capsules(images, trace=trace)

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Capsules to logits; with `pre_logits`, to the flat input of the classifier."""
        if self.global_pool:
            features = pooled(features, self.global_pool)
        return super().forward_head(features, pre_logits)

    def check_images(self, images: Tensor) -> None:
        """Raise an error for images that the network was not built for; pooled, any size is."""
        if not self.global_pool:
            super().check_images(images)
        elif images.ndim != 4 or images.shape[1] != self.in_chans:
            raise ValueError(
                f"expected images [batch, {self.in_chans}, height, width], got shape "
                f"{tuple(images.shape)}"
            )


def pooled(
    capsules: Float[Tensor, "batch channels dim height width"], kind: str
) -> Float[Tensor, "batch channels features"]:
    """The capsules of every channel over all positions.

    Args:
        capsules: The last feature map.
        kind: "avg" for their mean, "max" for the largest value of every entry, "catavgmax" for both
            in one vector.
    """
    found = []
    if kind in ("avg", "catavgmax"):
        found.append(capsules.mean((-2, -1)))
    if kind in ("max", "catavgmax"):
        found.append(capsules.amax((-2, -1)))
    return torch.cat(found, -1)
