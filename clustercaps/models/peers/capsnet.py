"""The capsule network of dynamic routing, for images of any size and number of channels.

Sabour, Frosst and Hinton, "Dynamic routing between capsules", NeurIPS 2017: a 9x9 convolution,
primary capsules, one capsule per class whose length is the score of the class, and a decoder that
draws the image from the capsule of its class. With the defaults it is the network for MNIST.
"""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from clustercaps.decoders import FullyConnectedDecoder
from clustercaps.errors import at_least
from clustercaps.layers import ImageBatch, Size
from clustercaps.losses import margin_loss, mask_capsules, reconstruction_loss
from clustercaps.models.base import ImageClassifier, Lesson
from clustercaps.models.preset import Preset
from clustercaps.primary import PrimaryCapsules, conv_size
from clustercaps.routing import Routed, create_routing
from clustercaps.routing.squash import length
from clustercaps.votes import VectorVotes

ClassCapsules = Float[Tensor, "batch classes dim"]


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

    def training_loss(self, lesson: Lesson) -> tuple[Tensor, Tensor]:
        """Margin loss, and the squared error of the image drawn from the true class."""
        features = self.forward_features(lesson.images)
        # Margins in half precision would be lost in rounding.
        lengths = self.forward_head(features).float()
        loss = margin_loss(lengths, lesson.labels)
        if self.decoder is not None and self.reconstruction:
            drawn = self.reconstruct(features, lesson.labels)
            loss = loss + self.reconstruction * reconstruction_loss(drawn, lesson.pixels)
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


class CapsNet(LengthClassifier):
    """Convolution, primary capsules, routed class capsules, decoder.

    Args:
        num_classes: Classes, at least 1: they are capsules.
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Channels of the first convolution.
        types: Primary capsule types.
        primary_dim: Numbers in a primary capsule.
        dim: Numbers in a class capsule.
        kernel_size: Side of both convolutions' windows.
        same_padding: Pad the convolutions so that only the stride shrinks the maps.
        routing: A name from `clustercaps.list_routings()` whose capsules have lengths.
        routing_options: Arguments of that routing, such as `{"iterations": 1}`.
        vote_std: Deviation of the first vote matrices.
        decoder: Whether to draw the image from the capsule of its class.
        reconstruction: Weight of the squared error of the drawn image, summed over its pixels.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        img_size: Size = 28,
        width: int = 256,
        types: int = 32,
        primary_dim: int = 8,
        dim: int = 16,
        kernel_size: int = 9,
        same_padding: bool = False,
        routing: str = "dynamic",
        routing_options: dict[str, Any] | None = None,
        vote_std: float = 0.1,
        decoder: bool = True,
        reconstruction: float = 0.0005,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction)
        padding = kernel_size // 2 if same_padding else 0
        self.conv = nn.Conv2d(in_chans, width, kernel_size, padding=padding)
        self.primary = PrimaryCapsules(width, types, primary_dim, kernel_size, 2, padding)
        children = self.primary.count(
            conv_size(self.img_size, kernel_size, 1, padding, "first convolution")
        )
        self.votes = VectorVotes(children, primary_dim, num_classes, dim, vote_std)
        self.routing = create_routing(routing, children, num_classes, dim, **routing_options or {})
        self.decoder = (
            FullyConnectedDecoder(num_classes * dim, in_chans, self.img_size) if decoder else None
        )

    def forward_features(self, images: ImageBatch) -> ClassCapsules:
        """Images to one capsule per class."""
        return self.route(images).capsules

    def route(self, images: ImageBatch) -> Routed:
        """Images to class capsules with the coupling of every primary capsule to them."""
        self.check_images(images)
        children = self.primary(self.conv(images).relu())
        return self.routing(self.votes(children))


PRESETS = {
    "capsnet": Preset(CapsNet, "dynamic routing (Sabour 2017), MNIST form"),
    "capsnet_cifar10": Preset(
        CapsNet,
        "dynamic routing, CIFAR-10 form: 24x24 crops, 64 types, leaky, no decoder",
        {
            "in_chans": 3,
            "img_size": 24,
            "types": 64,
            "same_padding": True,
            "routing_options": {"leaky": True, "bias": True},
            "decoder": False,
        },
    ),
    "capsnet_smallnorb": Preset(
        CapsNet,
        "dynamic routing, smallNORB form",
        {"num_classes": 5, "in_chans": 2, "img_size": 32},
    ),
    "capsnet_svhn": Preset(
        CapsNet,
        "dynamic routing, small SVHN form: 64 channels, 16 types of 6",
        {
            "in_chans": 3,
            "img_size": 32,
            "width": 64,
            "types": 16,
            "primary_dim": 6,
            "dim": 8,
            "decoder": False,
        },
    ),
}
