"""The capsule network of dynamic routing, for images of any size and number of channels.

Sabour, Frosst and Hinton, "Dynamic routing between capsules", NeurIPS 2017: a 9x9 convolution,
primary capsules, one capsule per class whose length is the score of the class, and a decoder that
reconstructs the image from the capsule of its class. The defaults are those for MNIST.
"""

import math
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.decoders import FullyConnectedDecoder
from clustercaps.layers.padding import pad_same
from clustercaps.layers.primary import PrimaryCapsules
from clustercaps.layers.votes import VectorVotes
from clustercaps.models.base import ClassCapsules, LengthClassifier
from clustercaps.models.preset import Preset, Recipe
from clustercaps.routing import Routed, create_routing
from clustercaps.utils.errors import unknown
from clustercaps.utils.sizes import ImageBatch, Size, conv_size, same_margins


class CapsNet(LengthClassifier):
    """Convolution, primary capsules, routed class capsules, decoder.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Channels of the first convolution.
        types: Primary capsule types.
        primary_dim: Dimension of a primary capsule.
        dim: Dimension of a class capsule.
        kernel_size: Kernel size of both convolutions.
        same_padding: Pad the convolutions so that only the stride reduces the size: True for
            `kernel_size` // 2 zeros on every side, "uneven" for one less at the top and left if the
            stride is 2, as in TensorFlow.
        routing: A name from `clustercaps.list_routings()` whose capsules have lengths.
        routing_options: Arguments of the routing, such as `{"iterations": 1}`.
        vote_std: Standard deviation of the initial vote matrices.
        decoder: Whether to reconstruct the image from the capsule of its class.
        reconstruction: Weight of the reconstruction loss, summed over pixels.
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
        same_padding: bool | str = False,
        routing: str = "dynamic",
        routing_options: dict[str, Any] | None = None,
        vote_std: float = 0.1,
        decoder: bool = True,
        reconstruction: float = 0.0005,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction)
        if same_padding not in (False, True, "uneven"):
            raise KeyError(unknown("same_padding", str(same_padding), ("False", "True", "uneven")))
        self.uneven = same_padding == "uneven"
        padding = kernel_size // 2 if same_padding else 0
        self.conv = nn.Conv2d(in_chans, width, kernel_size, padding=padding)
        own = 0 if self.uneven else padding
        self.primary = PrimaryCapsules(width, types, primary_dim, kernel_size, 2, own)
        size = conv_size(self.img_size, kernel_size, 1, padding, "first convolution")
        if self.uneven:
            height, breadth = (side + sum(same_margins(side, kernel_size, 2)) for side in size)
            size = height, breadth
        children = self.primary.count(size)
        self.votes = VectorVotes(children, primary_dim, num_classes, dim, vote_std)
        self.routing = create_routing(routing, children, num_classes, dim, **routing_options or {})
        self.decoder = (
            FullyConnectedDecoder(num_classes * dim, in_chans, self.img_size) if decoder else None
        )

    def forward_features(self, images: ImageBatch) -> ClassCapsules:
        """Images to one capsule per class."""
        return self.route(images).capsules

    def route(self, images: ImageBatch) -> Routed:
        """Images to class capsules, with the coupling coefficients of the primary capsules."""
        children = self.primary.cut(self.primary_channels(images))
        return self.routing(self.votes(children))

    def primary_channels(
        self, images: ImageBatch
    ) -> Float[Tensor, "batch channels map_height map_width"]:
        """Images to the channels from which the primary capsules are formed."""
        self.check_images(images)
        maps = self.conv(images).relu()
        if self.uneven:
            maps = pad_same(maps, self.primary.conv.kernel_size[0], 2)
        return self.primary.conv(maps)


BATCH = 128


def recipe(images: int, steps: int = 300_000) -> Recipe:
    """The recipe of Sabour et al. 2017, from the released code, for this many training images.

    The learning rate decays by 0.96 every 2,000 steps; the number of epochs depends on the dataset.
    """
    an_epoch = math.ceil(images / BATCH)
    return {
        "epochs": round(steps / an_epoch),
        "batch_size": BATCH,
        "optimizer": "adam",
        "lr": 1e-3,
        "schedule": "exponential",
        "lr_decay": 0.96,
        "decay_epochs": round(2000 / an_epoch, 4),
        "lr_floor": 1e-6,
        "weight_decay": 0.0,
    }


RECIPE = recipe(60_000)

PAPER = 'Sabour, Frosst and Hinton, "Dynamic routing between capsules", NeurIPS 2017'
CHOICES = (
    "The margin loss is the formula of the paper; the released code halves it and averages over "
    "the classes."
)

PRESETS = {
    "capsnet": Preset(
        CapsNet,
        "dynamic routing (Sabour 2017), MNIST variant",
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=28,
        data=("mnist",),
    ),
    "capsnet_cifar10": Preset(
        CapsNet,
        "dynamic routing, CIFAR-10 variant: 24x24 crops, 64 types, leaky, no decoder",
        {
            "in_chans": 3,
            "types": 64,
            "same_padding": "uneven",
            "routing_options": {"leaky": True, "bias": True},
            "decoder": False,
        },
        recipe=recipe(50_000, steps=600_000),
        paper=PAPER,
        choices=CHOICES + " The paper averages seven networks; this is one.",
        img_size=24,
        data=("cifar10",),
    ),
    "capsnet_smallnorb": Preset(
        CapsNet,
        "dynamic routing, smallNORB variant",
        {"num_classes": 5, "in_chans": 2},
        recipe=recipe(24_300),
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("smallnorb",),
    ),
    "capsnet_svhn": Preset(
        CapsNet,
        "dynamic routing, small SVHN variant: 64 channels, 16 types of 6",
        {
            "in_chans": 3,
            "width": 64,
            "types": 16,
            "primary_dim": 6,
            "dim": 8,
            "decoder": False,
        },
        recipe=recipe(73_257),
        paper=PAPER,
        choices=CHOICES
        + (
            " The published count, about 1.8M parameters, does not follow from the text; this "
            "network is what the text gives."
        ),
        img_size=32,
        data=("svhn",),
    ),
}
