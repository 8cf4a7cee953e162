"""Base classes of all networks: features, head, training loss, saving and loading."""

from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.losses import margin_loss, mask_capsules, reconstruction_loss
from clustercaps.models.pretrained import Pretrained
from clustercaps.routing.squash import length
from clustercaps.utils.errors import at_least
from clustercaps.utils.preprocessing import Preprocessing
from clustercaps.utils.sizes import ImageBatch, Size, pair

ClassCapsules = Float[Tensor, "batch classes dim"]


@dataclass(frozen=True)
class TrainingBatch:
    """The inputs of the training loss in one step.

    Attributes:
        images: Preprocessed images.
        labels: Their classes.
        pixels: The same images with values in 0 to 1, the target of decoders.
        step: Number of steps so far, for losses that change over time.
        train_images: Number of images in the training set, for losses with a prior.
        label_smoothing: Label smoothing; only for cross-entropy.
    """

    images: Tensor
    labels: Tensor
    pixels: Tensor
    step: int = 0
    train_images: int = 1
    label_smoothing: float = 0.0

    def cross_entropy(self, logits: Float[Tensor, "batch classes"]) -> Float[Tensor, " batch"]:
        """Cross-entropy of the logits and the labels."""
        return F.cross_entropy(
            logits, self.labels, reduction="none", label_smoothing=self.label_smoothing
        )


class ImageClassifier(nn.Module, Pretrained):
    """A network from images [B, in_chans, H, W] to logits [B, num_classes].

    Subclasses define `forward_features`, `forward_head` and `build_classifier`. Their arguments are
    JSON-serialisable: `save_pretrained` writes them to `config.json`, `from_pretrained` reads them.

    Args:
        num_classes: Number of classes; with 0 there is no head, and the network returns features.
        in_chans: Colour channels of the images.
        img_size: Height and width of the images, or one number for both.
    """

    # 1 for networks whose classes are capsules.
    min_classes = 0

    def __init__(self, num_classes: int, in_chans: int, img_size: Size) -> None:
        super().__init__()
        at_least("num_classes", num_classes, self.min_classes)
        at_least("in_chans", in_chans, 1)
        self.num_classes = num_classes
        self.in_chans = in_chans
        self.img_size = pair(img_size)

    # Any, because capsule networks can also return traces.
    def forward_features(self, images: Tensor) -> Any:
        """Images to features, the input of the head."""
        raise NotImplementedError

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Features to logits; with `pre_logits`, to the input of the classifier."""
        raise NotImplementedError

    def build_classifier(self) -> tuple[nn.Module, ...]:
        """Create everything that depends on `num_classes`; returns the new modules."""
        raise NotImplementedError

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier for another number of classes; other weights are kept."""
        self.set_num_classes(num_classes)
        like = next(self.parameters())
        for module in self.build_classifier():
            module.to(device=like.device, dtype=like.dtype).train(self.training)

    def rebuilt(self) -> Any:
        """A network with the same settings, device, dtype and mode, and with new weights."""
        like = next(self.parameters())
        fresh = type(self)(**self.settings).to(device=like.device, dtype=like.dtype)
        return fresh.train(self.training)

    def forward(self, images: ImageBatch) -> Float[Tensor, "batch classes"]:
        """Images to logits."""
        return self.forward_head(self.forward_features(images))

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """The loss per image [B], and the logits [B, num_classes].

        Cross-entropy by default; networks with another loss override this.
        """
        logits = self(batch.images).float()
        return batch.cross_entropy(logits), logits

    @classmethod
    def takes_label_smoothing(cls) -> bool:
        """Whether the loss is cross-entropy, the only one that supports label smoothing."""
        return cls.training_loss is ImageClassifier.training_loss

    def check_images(self, images: Tensor) -> None:
        """Raise an error if images do not have the size and channels the network was built for."""
        expected = (self.in_chans, *self.img_size)
        if images.ndim != 4 or images.shape[1:] != expected:
            raise ValueError(
                f"expected images [batch, {', '.join(map(str, expected))}], got shape "
                f"{tuple(images.shape)}; resize or pad the images, or build the network with these "
                "in_chans and img_size"
            )

    def check_preprocessing(self, preprocessing: Preprocessing) -> None:
        """Raise an error unless it gives what the network takes, with a name for each class."""
        preprocessing.check_network(self.num_classes, self.in_chans, self.img_size)

    def set_num_classes(self, num_classes: int) -> None:
        """Set the number of classes, also for `save_pretrained`."""
        at_least("num_classes", num_classes, self.min_classes)
        if self.preprocessing is not None and num_classes != self.num_classes:
            # The names are those of other classes.
            self.preprocessing = replace(self.preprocessing, class_names=())
        self.num_classes = num_classes
        self.settings["num_classes"] = num_classes


class LinearClassifier(ImageClassifier):
    """A network whose head is one linear layer on its flattened features.

    Subclasses call `build_head` at the end of their `__init__`.
    """

    head: nn.Module
    # Positions of the feature map that the head reads.
    head_positions = 1

    def build_head(self, num_features: int, positions: int = 1) -> None:
        """Create a linear layer on `num_features` features, or the identity for 0 classes.

        Args:
            num_features: Inputs of the head.
            positions: Positions of a feature map that they are from.
        """
        self.num_features, self.head_positions = num_features, positions
        self.head = nn.Linear(num_features, self.num_classes) if self.num_classes else nn.Identity()

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Features to logits; with `pre_logits`, to the flat input of the classifier."""
        flat = features.flatten(1)
        return flat if pre_logits else self.head(flat)

    def build_classifier(self) -> tuple[nn.Module, ...]:
        """Create the head."""
        self.build_head(self.num_features, self.head_positions)
        return (self.head,)


class LengthClassifier(ImageClassifier):
    """A network with one capsule per class, whose length is the score, and optionally a decoder.

    Subclasses define `forward_features` to class capsules [B, num_classes, dim], and `decoder`,
    which may be None.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        reconstruction: Weight of the reconstruction loss, summed over pixels.
    """

    min_classes = 1
    decoder: nn.Module | None

    def __init__(
        self, num_classes: int, in_chans: int, img_size: Size, reconstruction: float
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        if reconstruction < 0:
            raise ValueError(f"reconstruction must not be negative, got {reconstruction}")
        self.reconstruction = reconstruction

    def forward_head(self, features: ClassCapsules, pre_logits: bool = False) -> Tensor:
        """Class capsules to their lengths; with `pre_logits`, flattened."""
        return features.flatten(1) if pre_logits else length(features)

    def reconstruct(
        self, features: ClassCapsules, labels: Int[Tensor, " batch"] | None = None
    ) -> ImageBatch:
        """Reconstruct each image from one class capsule: that of its label or prediction."""
        if self.decoder is None:
            raise ValueError("this network was built without a decoder; build it with decoder=True")
        if labels is None:
            labels = self.forward_head(features).argmax(1)
        return self.decoder(mask_capsules(features, labels))

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Margin loss, and reconstruction loss from the capsule of the true class."""
        features = self.forward_features(batch.images)
        # Half precision is not accurate enough for margins.
        lengths = self.forward_head(features).float()
        loss = margin_loss(lengths, batch.labels)
        if self.decoder is not None and self.reconstruction:
            drawn = self.reconstruct(features, batch.labels)
            loss = loss + self.reconstruction * reconstruction_loss(drawn, batch.pixels)
        return loss, lengths

    def reset_classifier(self, num_classes: int) -> None:
        """Replace class capsules and decoder; other weights are kept."""
        self.set_num_classes(num_classes)
        fresh = self.rebuilt()
        kept = {
            name: tensor
            for name, tensor in self.state_dict().items()
            if name in fresh.state_dict() and fresh.state_dict()[name].shape == tensor.shape
        }
        fresh.load_state_dict(kept, strict=False)
        for name, module in fresh.named_children():
            setattr(self, name, module)
