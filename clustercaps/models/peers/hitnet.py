"""HitNet: class capsules without routing that hit or miss the centre of a cube.

Deliege, Cioppa and Van Droogenbroeck, "HitNet: a neural network with capsules embedded in a
Hit-or-Miss layer", arXiv 1806.06519, 2018. Two 9x9 convolutions, one linear layer with batch norm
and sigmoid to a capsule in [0, 1]^dim per class: the class whose capsule is closest to the centre
(1/2, ..., 1/2) is the prediction. A decoder reconstructs the image from the capsule of its class.

A reconstruction: margins, steps and the weight of the decoder are from third-party code, since the
released code is no longer available. The paper's mixing of images is omitted.
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
    """Two convolutions, a Hit-or-Miss layer, decoder. Scores are negative distances.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Channels of both convolutions.
        dim: Dimension of a class capsule.
        kernel_size: Kernel size of both convolutions.
        ghosts: In training, do not penalise the closest wrong capsule.
        decoder: Whether to reconstruct the image from the capsule of its class.
        reconstruction: Weight of the reconstruction loss, summed over pixels.
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
        """Class capsules to negative distances from the centre: the closest scores highest."""
        return features.flatten(1) if pre_logits else -length(features - 0.5)

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Centripetal loss, and reconstruction loss from the capsule of the true class."""
        features = self.forward_features(batch.images)
        scores = self.forward_head(features)
        loss = centripetal_loss(-scores, batch.labels, self.dim, ghosts=self.ghosts)
        if self.decoder is not None and self.reconstruction:
            drawn = self.reconstruct(features, batch.labels)
            loss = loss + self.reconstruction * reconstruction_loss(drawn, batch.pixels)
        return loss, scores

    def prototypes(self) -> ImageBatch:
        """The image of each class reconstructed from the centre."""
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
            "decoder come from third-party code. The paper's mixing of images is omitted, and the "
            "recipe is our choice."
        ),
        img_size=28,
        data=("mnist", "fashion-mnist", "svhn", "cifar10"),
        sizes={"svhn": 32, "cifar10": 32},
    ),
}
