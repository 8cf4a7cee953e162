"""The paper's two networks for images reconstructed from transformed feature maps.

Three layers, the second with stride 2, without layer norm; a linear classifier and an upsampling
decoder both read the last feature maps, 16 channels at half the size of the image. The paper calls
its capsule network C4K4D32, but only C4 K8 D4 has the printed parameter counts.
"""

import math

from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.cluster import Capsules
from clustercaps.layers.decoders import UpsamplingDecoder
from clustercaps.losses import reconstruction_loss
from clustercaps.models.base import LinearClassifier, TrainingBatch
from clustercaps.models.stack import CapsuleStack
from clustercaps.utils.sizes import ImageBatch, Size, map_sizes

STRIDES = (1, 2, 1)


class DrawingClassifier(LinearClassifier):
    """A linear classifier and a decoder on the same feature maps, trained together.

    Subclasses define `forward_features` and `decoder`.

    Args:
        num_classes: Number of classes; 0 for no classifier.
        in_chans: Colour channels.
        img_size: Height and width of the images.
        reconstruction: Weight of the reconstruction loss, summed over pixels, relative to the
            cross-entropy; the paper does not give it.
    """

    decoder: nn.Module

    def __init__(
        self, num_classes: int, in_chans: int, img_size: Size, reconstruction: float
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        self.reconstruction = reconstruction

    def reconstruct(self, features: Tensor) -> ImageBatch:
        """Reconstruct images from the last feature maps [B, ..., H/2, W/2]."""
        return self.decoder(features.flatten(1, -3))

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Cross-entropy and reconstruction loss."""
        features = self.forward_features(batch.images)
        logits = self.forward_head(features).float()
        drawn = self.reconstruct(features)
        loss = batch.cross_entropy(logits)
        return loss + self.reconstruction * reconstruction_loss(drawn, batch.pixels), logits


class AffineCapsuleNet(DrawingClassifier):
    """Three capsule layers, a linear classifier, and a decoder on the last capsule channels.

    Args:
        num_classes: Number of classes; 0 for no classifier.
        in_chans: Colour channels.
        img_size: Height and width of the images.
        channels: Capsule channels of every layer (C).
        clusters: Weight clusters per child channel (N).
        votes: Votes in a cluster (K).
        dim: Capsule dimension (D).
        routing: A name from `clustercaps.list_routings()`.
        reconstruction: Weight of the reconstruction loss.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        img_size: Size = 28,
        channels: int = 4,
        clusters: int = 1,
        votes: int = 8,
        dim: int = 4,
        routing: str = "cluster",
        reconstruction: float = 0.005,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction)
        self.capsules = CapsuleStack(
            in_dim=in_chans,
            img_size=self.img_size,
            channels=channels,
            clusters=clusters,
            votes=votes,
            dim=dim,
            strides=STRIDES,
            norm=False,
            routing=routing,
        )
        self.build_head(math.prod(self.capsules.out_shape))
        self.decoder = UpsamplingDecoder(channels * dim, in_chans, self.img_size)

    def forward_features(self, images: ImageBatch) -> Capsules:
        """Images to the last layer's capsules [B, C, D, H/2, W/2]."""
        self.check_images(images)
        return self.capsules(images)


class AffineCNN(DrawingClassifier):
    """The same with ordinary convolutions: 96, 96 and 16 filters with ReLU.

    Args:
        num_classes: Number of classes; 0 for no classifier.
        in_chans: Colour channels.
        img_size: Height and width of the images.
        reconstruction: Weight of the reconstruction loss.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        img_size: Size = 28,
        reconstruction: float = 0.005,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction)
        widths = (in_chans, 96, 96, 16)
        self.convs = nn.ModuleList(
            nn.Conv2d(widths[i], widths[i + 1], 3, stride, padding=1)
            for i, stride in enumerate(STRIDES)
        )
        height, width = map_sizes(self.img_size, [(3, stride, 1) for stride in STRIDES])[-1]
        self.build_head(widths[-1] * height * width)
        self.decoder = UpsamplingDecoder(widths[-1], in_chans, self.img_size)

    def forward_features(
        self, images: ImageBatch
    ) -> Float[Tensor, "batch 16 half_height half_width"]:
        """Images to the feature maps of the last layer."""
        self.check_images(images)
        for conv in self.convs:
            images = conv(images).relu()
        return images
