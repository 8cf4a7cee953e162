"""One capsule per class, and a decoder that reconstructs the image from the capsule of its class.

The paper's network for disentangled dimensions and for the plots of routing weights. It specifies
only "M-variant 2 with ten last-layer capsules"; strides and padding are ours, and give feature maps
of 28, 14, 7, 3 and 1 for 28x28 images.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn

from clustercaps.layers.cluster import RoutingTrace
from clustercaps.layers.decoders import FullyConnectedDecoder
from clustercaps.losses import mask_capsules, reconstruction_loss
from clustercaps.models.base import ImageClassifier, TrainingBatch
from clustercaps.models.stack import CapsuleStack
from clustercaps.utils.sizes import ImageBatch, Size, show_size

STRIDES = (1, 2, 2, 2, 1)
PADDINGS = (1, 1, 1, 0, 0)


class ClassCapsuleNet(ImageClassifier):
    """Five capsule layers down to one capsule per class; a shared linear unit scores each of them.

    Args:
        num_classes: Number of classes, at least 1 (one channel of the last layer each).
        in_chans: Colour channels.
        img_size: Height and width of the images, 25 to 32.
        channels: Capsule channels of the layers before the last (C).
        clusters: Weight clusters per child channel (N).
        votes: Votes in a cluster (K).
        dim: Capsule dimension (D).
        routing: A name from `clustercaps.list_routings()`.
        reconstruction: Weight of the reconstruction loss, summed over pixels, relative to the
            cross-entropy; the paper does not give it.
    """

    min_classes = 1

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        img_size: Size = 28,
        channels: int = 4,
        clusters: int = 1,
        votes: int = 5,
        dim: int = 8,
        routing: str = "cluster",
        reconstruction: float = 0.005,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        self.reconstruction = reconstruction
        self.capsules = CapsuleStack(
            in_dim=in_chans,
            img_size=self.img_size,
            channels=channels,
            clusters=clusters,
            votes=votes,
            dim=dim,
            strides=STRIDES,
            paddings=PADDINGS,
            out_channels=num_classes,
            routing=routing,
        )
        if self.capsules.out_shape[2:] != (1, 1):
            raise ValueError(
                f"images of {show_size(self.img_size)} give last feature maps of "
                f"{show_size(self.capsules.out_shape[2:])}, expected 1x1; use images with sides of "
                "25 to 32 pixels"
            )
        self.dim = dim
        self.head = nn.Linear(dim, 1)
        self.decoder = FullyConnectedDecoder(num_classes * dim, in_chans, self.img_size)

    def forward_features(
        self, images: ImageBatch, trace: bool = False
    ) -> (
        Float[Tensor, "batch classes dim"]
        | tuple[Float[Tensor, "batch classes dim"], list[RoutingTrace]]
    ):
        """Images to one capsule per class; with `trace`, also one `RoutingTrace` per layer."""
        self.check_images(images)
        if trace:
            capsules, traces = self.capsules(images, trace=True)
            return capsules.flatten(2), traces
        return self.capsules(images).flatten(2)

    def forward_head(
        self, features: Float[Tensor, "batch classes dim"], pre_logits: bool = False
    ) -> Tensor:
        """Class capsules to logits; with `pre_logits`, flattened."""
        return features.flatten(1) if pre_logits else self.head(features).squeeze(2)

    def reconstruct(
        self,
        features: Float[Tensor, "batch classes dim"],
        labels: Int[Tensor, " batch"] | None = None,
    ) -> ImageBatch:
        """Reconstruct each image from one class capsule, with all others set to zero.

        Args:
            features: The class capsules.
            labels: Classes to reconstruct; required in training mode, the predicted classes by
                default.
        """
        if labels is None:
            if self.training:
                raise ValueError("in training mode, capsules are masked by label; pass labels")
            labels = self.forward_head(features).argmax(1)
        return self.decoder(mask_capsules(features, labels))

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Cross-entropy, and reconstruction loss from the capsule of the true class."""
        features = self.forward_features(batch.images)
        assert isinstance(features, Tensor)
        logits = self.forward_head(features).float()
        drawn = self.reconstruct(features, batch.labels)
        loss = batch.cross_entropy(logits)
        return loss + self.reconstruction * reconstruction_loss(drawn, batch.pixels), logits

    def reset_classifier(self, num_classes: int) -> None:
        """Replace class capsules and decoder; other weights are kept."""
        self.set_num_classes(num_classes)
        fresh = self.rebuilt()
        self.capsules.layers[-1] = fresh.capsules.layers[-1]
        self.capsules.out_shape = fresh.capsules.out_shape
        self.head, self.decoder = fresh.head, fresh.decoder
