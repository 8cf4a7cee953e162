"""What every network here can do: classify, give its features, swap its head, save and load."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.losses import margin_loss, mask_capsules, reconstruction_loss
from clustercaps.models.pretrained import Pretrained
from clustercaps.routing.squash import length
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import ImageBatch, Size, pair

ClassCapsules = Float[Tensor, "batch classes dim"]


@dataclass(frozen=True)
class TrainingBatch:
    """What a network is given to learn from in one step.

    Attributes:
        images: Prepared images.
        labels: Their classes.
        pixels: The same images as numbers of 0 to 1, for decoders to draw.
        step: Steps done so far, for losses that change over time.
        train_images: Images in the training set, for losses that weigh a prior against them.
        label_smoothing: Probability spread over all classes; for cross-entropy only.
    """

    images: Tensor
    labels: Tensor
    pixels: Tensor
    step: int = 0
    train_images: int = 1
    label_smoothing: float = 0.0

    def cross_entropy(self, logits: Float[Tensor, "batch classes"]) -> Float[Tensor, " batch"]:
        """How badly the logits tell the labels."""
        return F.cross_entropy(
            logits, self.labels, reduction="none", label_smoothing=self.label_smoothing
        )


class ImageClassifier(nn.Module, Pretrained):
    """A network from images [B, in_chans, H, W] to logits [B, num_classes].

    Subclasses define `forward_features`, `forward_head` and `reset_classifier`. Their arguments are
    JSON-plain: `save_pretrained` writes them to `config.json`, `from_pretrained` reads them back.

    Args:
        num_classes: Classes; 0 leaves out the head, and the network returns what the head reads.
        in_chans: Colour channels of the images.
        img_size: Height and width of the images, or one number for both.
    """

    def __init__(self, num_classes: int, in_chans: int, img_size: Size) -> None:
        super().__init__()
        at_least("num_classes", num_classes, 0)
        at_least("in_chans", in_chans, 1)
        self.num_classes = num_classes
        self.in_chans = in_chans
        self.img_size = pair(img_size)

    # Any, because capsule networks can return their traces as well.
    def forward_features(self, images: Tensor) -> Any:
        """What the network makes of the images, before the classifier."""
        raise NotImplementedError

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Features to logits; with `pre_logits`, to the vector that the classifier reads."""
        raise NotImplementedError

    def reset_classifier(self, num_classes: int) -> None:
        """A fresh classifier for another number of classes; the rest keeps its weights."""
        raise NotImplementedError

    def forward(self, images: ImageBatch) -> Float[Tensor, "batch classes"]:
        """Images to logits."""
        return self.forward_head(self.forward_features(images))

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """What training makes small [B], and the logits [B, num_classes] that came with it.

        Cross-entropy; networks with a loss of their own override this.
        """
        logits = self(batch.images).float()
        return batch.cross_entropy(logits), logits

    @classmethod
    def takes_label_smoothing(cls) -> bool:
        """Whether its loss is the cross-entropy above, which alone knows label smoothing."""
        return cls.training_loss is ImageClassifier.training_loss

    def check_images(self, images: Tensor) -> None:
        """Refuse images of another size or number of channels than the network was built for."""
        expected = (self.in_chans, *self.img_size)
        if images.ndim != 4 or images.shape[1:] != expected:
            raise ValueError(
                f"expected images [batch, {', '.join(map(str, expected))}], got shape "
                f"{tuple(images.shape)}; resize or pad the images, or build the network with that "
                "in_chans and img_size"
            )

    def set_num_classes(self, num_classes: int) -> None:
        """Remember the new number of classes, also in what `save_pretrained` writes."""
        at_least("num_classes", num_classes, 0)
        self.num_classes = num_classes
        self.settings["num_classes"] = num_classes


class LinearClassifier(ImageClassifier):
    """A network whose head is one linear layer on its flattened features.

    Subclasses call `build_head` at the end of their `__init__`.
    """

    head: nn.Module

    def build_head(self, num_features: int) -> None:
        """Put a fresh linear layer, or nothing for 0 classes, on `num_features` features."""
        self.num_features = num_features
        self.head = nn.Linear(num_features, self.num_classes) if self.num_classes else nn.Identity()

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Features to logits; with `pre_logits`, to the flat vector that the classifier reads."""
        flat = features.flatten(1)
        return flat if pre_logits else self.head(flat)

    def reset_classifier(self, num_classes: int) -> None:
        """A fresh linear classifier for that many classes; the rest keeps its weights."""
        like = next(self.parameters())
        self.set_num_classes(num_classes)
        self.build_head(self.num_features)
        self.head.to(device=like.device, dtype=like.dtype)


class LengthClassifier(ImageClassifier):
    """A network with a capsule per class: its length is the score; a decoder draws from it.

    Subclasses define `forward_features` to class capsules [B, num_classes, dim], and `decoder`,
    which may be None.

    Args:
        num_classes: Classes, at least 1: they are capsules.
        in_chans: Colour channels.
        img_size: Height and width of the images.
        reconstruction: Weight of the squared error of the drawn image, summed over its pixels.
    """

    decoder: nn.Module | None

    def __init__(
        self, num_classes: int, in_chans: int, img_size: Size, reconstruction: float
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        at_least("num_classes", num_classes, 1)
        if reconstruction < 0:
            raise ValueError(f"reconstruction must not be negative, got {reconstruction}")
        self.reconstruction = reconstruction

    def forward_head(self, features: ClassCapsules, pre_logits: bool = False) -> Tensor:
        """Class capsules to their lengths; with `pre_logits`, to the flat vector of all."""
        return features.flatten(1) if pre_logits else length(features)

    def reconstruct(
        self, features: ClassCapsules, labels: Int[Tensor, " batch"] | None = None
    ) -> ImageBatch:
        """Draw each image from one class capsule: that of its label, or the predicted one."""
        if self.decoder is None:
            raise ValueError("this network was built without a decoder; build it with decoder=True")
        if labels is None:
            labels = self.forward_head(features).argmax(1)
        return self.decoder(mask_capsules(features, labels))

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Margin loss, and the squared error of the image drawn from the true class."""
        features = self.forward_features(batch.images)
        # Margins in half precision would be lost in rounding.
        lengths = self.forward_head(features).float()
        loss = margin_loss(lengths, batch.labels)
        if self.decoder is not None and self.reconstruction:
            drawn = self.reconstruct(features, batch.labels)
            loss = loss + self.reconstruction * reconstruction_loss(drawn, batch.pixels)
        return loss, lengths

    def reset_classifier(self, num_classes: int) -> None:
        """Fresh class capsules and decoder for that many classes; the rest keeps its weights."""
        at_least("num_classes", num_classes, 1)
        self.set_num_classes(num_classes)
        fresh = type(self)(**self.settings)
        like = next(self.parameters())
        fresh.to(device=like.device, dtype=like.dtype)
        kept = {
            name: tensor
            for name, tensor in self.state_dict().items()
            if name in fresh.state_dict() and fresh.state_dict()[name].shape == tensor.shape
        }
        fresh.load_state_dict(kept, strict=False)
        for name, module in fresh.named_children():
            setattr(self, name, module)
