"""HitNet: class capsules without routing that hit the centre of a cube, or miss it.

Deliege, Cioppa and Van Droogenbroeck, "HitNet: a neural network with capsules embedded in a
Hit-or-Miss layer", arXiv 1806.06519, 2018. Two 9x9 convolutions, one linear layer with batch norm
and sigmoid to a capsule in [0, 1]^dim per class: the class whose capsule is nearest to the centre
(1/2, ..., 1/2) is the prediction. A decoder draws the image from the capsule of its class.

A reconstruction: margins, steps and the weight of the decoder are those of a third party's code, as
the authors' is no longer to be had. The paper's mixing of images is left out.
"""

import torch
from torch import Tensor, nn

from clustercaps.layers.decoders import FullyConnectedDecoder
from clustercaps.losses import centripetal_loss, reconstruction_loss
from clustercaps.models.base import ClassCapsules, LengthClassifier, TrainingBatch
from clustercaps.models.preset import UNKNOWN_RECIPE, Preset
from clustercaps.routing.squash import length
from clustercaps.utils.sizes import ImageBatch, Size, conv_size


class HitNet(LengthClassifier):
    """Two convolutions, a Hit-or-Miss layer, decoder. Scores are distances with a minus.

    Args:
        num_classes: Classes, at least 1: they are capsules.
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Channels of both convolutions.
        dim: Numbers in a class capsule.
        kernel_size: Side of both convolutions' windows.
        ghosts: In training, ask neither hit nor miss of the wrong capsule that is nearest.
        decoder: Whether to draw the image from the capsule of its class.
        reconstruction: Weight of the squared error of the drawn image, summed over its pixels.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        img_size: Size = 28,
        width: int = 256,
        dim: int = 16,
        kernel_size: int = 9,
        ghosts: bool = False,
        decoder: bool = True,
        reconstruction: float = 0.0005,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction)
        self.dim, self.ghosts = dim, ghosts
        self.convs = nn.Sequential(
            nn.Conv2d(in_chans, width, kernel_size),
            nn.ReLU(),
            nn.Conv2d(width, width, kernel_size, stride=2),
            nn.ReLU(),
        )
        size = conv_size(self.img_size, kernel_size, layer="first convolution")
        height, breadth = conv_size(size, kernel_size, 2, layer="second convolution")
        self.hit_or_miss = nn.Sequential(
            nn.Linear(width * height * breadth, num_classes * dim),
            nn.BatchNorm1d(num_classes * dim),
            nn.Sigmoid(),
            nn.Unflatten(1, (num_classes, dim)),
        )
        self.decoder = (
            FullyConnectedDecoder(num_classes * dim, in_chans, self.img_size) if decoder else None
        )

    def forward_features(self, images: ImageBatch) -> ClassCapsules:
        """Images to one capsule per class, in [0, 1]^dim."""
        self.check_images(images)
        return self.hit_or_miss(self.convs(images).flatten(1))

    def forward_head(self, features: ClassCapsules, pre_logits: bool = False) -> Tensor:
        """Class capsules to minus their distances from the centre: the nearest scores highest."""
        return features.flatten(1) if pre_logits else -length(features - 0.5)

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Centripetal loss, and the squared error of the image drawn from the true class."""
        features = self.forward_features(batch.images)
        scores = self.forward_head(features)
        loss = centripetal_loss(-scores, batch.labels, self.dim, ghosts=self.ghosts)
        if self.decoder is not None and self.reconstruction:
            drawn = self.reconstruct(features, batch.labels)
            loss = loss + self.reconstruction * reconstruction_loss(drawn, batch.pixels)
        return loss, scores

    def prototypes(self) -> ImageBatch:
        """What the network takes for the ideal image of each class: drawn from the centre."""
        like = next(self.parameters())
        classes = torch.arange(self.num_classes, device=like.device)
        centre = torch.full((1, self.num_classes, self.dim), 0.5).to(like)
        return self.reconstruct(centre.expand(self.num_classes, -1, -1), classes)


PAPER = (
    'Deliege, Cioppa and Van Droogenbroeck, "HitNet: a neural network with capsules embedded in a '
    'Hit-or-Miss layer", arXiv 1806.06519, 2018'
)

PRESETS = {
    "hitnet": Preset(
        HitNet,
        "Hit-or-Miss capsules (Deliege 2018), no routing",
        reconstruction=True,
        recipe=UNKNOWN_RECIPE,
        paper=PAPER,
        choices=(
            "The released code is no longer available: margins, steps and the weight of the "
            "decoder come from third-party code. Mixing of images, as in the paper, is left out, "
            "and the recipe is our choice."
        ),
        img_size=28,
        data=("mnist", "fashion-mnist", "svhn", "cifar10"),
        sizes={"svhn": 32, "cifar10": 32},
    ),
}
