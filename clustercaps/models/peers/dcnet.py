"""DCNet: dynamic routing on top of densely connected convolutions.

Phaye, Sikka, Dhall and Bathula, "Dense and diverse capsule networks", arXiv 1805.04001, 2018. Eight
3x3 convolutions, each on the image and the outputs of all previous ones, replace the 9x9
convolution; the decoder is densely connected as well. `clustercaps.models.peers.dcnet3` is the
variant with three levels.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.decoders import DenseDecoder
from clustercaps.layers.primary import PrimaryCapsules
from clustercaps.layers.votes import VectorVotes
from clustercaps.models.base import ClassCapsules, LengthClassifier
from clustercaps.models.preset import Preset, Recipe
from clustercaps.routing import Routed, create_routing
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import ImageBatch, Size

# Epsilon of batch norm in the released code.
NORM_EPS = 1.1e-5


class DenseBlock(nn.Module):
    """Convolutions, each on the input and the outputs of all previous ones, then batch norm.

    Args:
        map_chans: Input channels.
        layers: Number of convolutions, each after batch norm and ReLU.
        growth: Output channels of each.
    """

    def __init__(self, map_chans: int, layers: int = 8, growth: int = 32) -> None:
        super().__init__()
        at_least("layers", layers, 1)
        at_least("growth", growth, 1)
        sizes = [map_chans + growth * number for number in range(layers + 1)]
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(size, eps=NORM_EPS),
                nn.ReLU(),
                nn.Conv2d(size, growth, 3, padding=1, bias=False),
            )
            for size in sizes[:-1]
        )
        for layer in self.layers:
            assert isinstance(layer, nn.Sequential)
            assert isinstance(layer[2], nn.Conv2d)
            nn.init.kaiming_normal_(layer[2].weight)
        self.out_chans = sizes[-1]
        self.norm = nn.BatchNorm2d(self.out_chans, eps=NORM_EPS)

    def forward(
        self, maps: Float[Tensor, "batch map_chans height width"]
    ) -> Float[Tensor, "batch out_chans height width"]:
        """Feature maps to themselves and `layers` x `growth` more channels."""
        for layer in self.layers:
            maps = torch.cat([maps, layer(maps)], 1)
        return self.norm(maps)


class DCNet(LengthClassifier):
    """Dense block, primary capsules, routed class capsules, dense decoder.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        layers: Convolutions of the dense block.
        growth: Channels of each.
        types: Primary capsule types.
        primary_dim: Dimension of a primary capsule.
        dim: Dimension of a class capsule.
        routing: A name from `clustercaps.list_routings()` whose capsules have lengths.
        routing_options: Arguments of the routing, such as `{"iterations": 1}`.
        vote_std: Standard deviation of the initial vote matrices; our choice. With CapsNet's 0.1,
            the sums of so many votes saturate the lengths of all classes.
        decoder: Whether to reconstruct the image from the capsule of its class.
        reconstruction: Weight of the reconstruction loss, summed over pixels.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        img_size: Size = 28,
        layers: int = 8,
        growth: int = 32,
        types: int = 32,
        primary_dim: int = 8,
        dim: int = 16,
        routing: str = "dynamic",
        routing_options: dict[str, Any] | None = None,
        vote_std: float = 0.01,
        decoder: bool = True,
        reconstruction: float = 0.0005,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction)
        self.block = DenseBlock(in_chans, layers, growth)
        self.primary = PrimaryCapsules(self.block.out_chans, types, primary_dim)
        children = self.primary.count(self.img_size)
        self.votes = VectorVotes(children, primary_dim, num_classes, dim, vote_std)
        self.routing = create_routing(routing, children, num_classes, dim, **routing_options or {})
        self.decoder = DenseDecoder(num_classes * dim, in_chans, self.img_size) if decoder else None

    def forward_features(self, images: ImageBatch) -> ClassCapsules:
        """Images to one capsule per class."""
        return self.route(images).capsules

    def route(self, images: ImageBatch) -> Routed:
        """Images to class capsules, with the coupling coefficients of the primary capsules."""
        self.check_images(images)
        return self.routing(self.votes(self.primary(self.block(images))))


# Phaye et al. 2018, from the released code. After 200 epochs the learning rate is below 1e-12.
RECIPE: Recipe = {
    "epochs": 500,
    "batch_size": 100,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "exponential",
    "lr_decay": 0.9,
    "decay_epochs": 1.0,
    "weight_decay": 0.0,
}

PAPER = (
    'Phaye, Sikka, Dhall and Bathula, "Dense and diverse capsule networks", arXiv 1805.04001, 2018'
)

PRESETS = {
    "dcnet": Preset(
        DCNet,
        "dynamic routing on dense convolutions (Phaye 2018)",
        recipe=RECIPE,
        paper=PAPER,
        choices=(
            "Settings for datasets other than MNIST and CIFAR-10 are not public; 32x32 images are "
            "our choice there. So is the standard deviation of the initial vote matrices."
        ),
        img_size=28,
        data=("mnist", "fashion-mnist", "svhn", "smallnorb", "cifar10"),
        sizes={"svhn": 32, "smallnorb": 32, "cifar10": 32},
    ),
}
