"""AR-CapsNet: votes from convolutions, attention over the children, tanh of whole capsules.

Choi, Seo, Im and Kang, "Attention routing between capsules", ICCV workshops 2019. Two convolutions
with batch norm, primary capsules, convolutional capsule layers with residual connections, class
capsules from the whole feature map, and a decoder.

Parameter counts in the paper and in Keras summaries include the running statistics of the two batch
norms, 256 values, which are not learned: they are buffers here.

The released code has branches for up to three capsule layers, while its command for CIFAR-10 asks
for four; the fourth is one more layer like the third.
"""

import math

from torch import Tensor, nn

from clustercaps.layers.activation import CapsuleActivation
from clustercaps.layers.attention import AttentionCapsules2d
from clustercaps.layers.decoders import FullyConnectedDecoder
from clustercaps.layers.minimal_conv import MinimalConv2d
from clustercaps.layers.padding import pad_same
from clustercaps.models.base import ClassCapsules, LengthClassifier
from clustercaps.models.preset import Preset, Recipe
from clustercaps.routing.squash import length
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import ImageBatch, Size


class ARCapsNet(LengthClassifier):
    """Stem, primary capsules, capsule layers, class capsules, decoder.

    The score of a class is the length of its capsule over sqrt(dim), which is below 1.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Channels of the two convolutions of the stem.
        types: Capsule types.
        primary_dim: Dimension of a primary capsule.
        dim: Dimension of all other capsules.
        layers: Convolutional capsule layers; the first halves the size, the others are residual.
        dropout: Dropout rate of the input of a capsule layer.
        decoder: Whether to reconstruct the image from the capsule of its class.
        reconstruction: Weight of the reconstruction loss, averaged over pixels.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        img_size: Size = 28,
        width: int = 64,
        types: int = 8,
        primary_dim: int = 16,
        dim: int = 32,
        layers: int = 1,
        dropout: float = 0.5,
        decoder: bool = True,
        reconstruction: float = 0.3,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction)
        at_least("layers", layers, 1)
        height, width_of_image = self.img_size
        # The loss of the base class sums over pixels.
        self.reconstruction = reconstruction / (in_chans * height * width_of_image)
        self.stem = nn.Sequential(
            *_convolution(in_chans, width),
            *_convolution(width, width),
        )
        self.primary = nn.Conv2d(width, types * primary_dim, 3, 2)
        self.primary_activation = CapsuleActivation(types, primary_dim)
        self.capsules = nn.ModuleList(
            AttentionCapsules2d(
                types, dim if n else primary_dim, types, dim, stride=1 if n else 2, dropout=dropout
            )
            for n in range(layers)
        )
        # Halved twice, rounding up: any image size works.
        map_size = (-(-height // 4), -(-width_of_image // 4))
        self.classes = AttentionCapsules2d(
            types, dim, num_classes, dim, map_size, same=False, dropout=dropout
        )
        self.decoder = (
            FullyConnectedDecoder(num_classes * dim, in_chans, self.img_size, (512, 512))
            if decoder
            else None
        )
        for conv in (self.stem[0], self.stem[3], self.primary):
            assert isinstance(conv, nn.Conv2d)
            nn.init.xavier_uniform_(conv.weight)
            assert conv.bias is not None
            nn.init.zeros_(conv.bias)

    def forward_features(self, images: ImageBatch) -> ClassCapsules:
        """Images to one capsule per class."""
        self.check_images(images)
        maps = self.primary(pad_same(self.stem(images), 3, 2)).relu()
        types, dim = self.primary_activation.bias.shape
        capsules: Tensor = self.primary_activation(maps.unflatten(1, (types, dim)))
        for number, layer in enumerate(self.capsules):
            capsules = layer(capsules, residual=number > 0)
        return self.classes(capsules).flatten(2)

    def forward_head(self, features: ClassCapsules, pre_logits: bool = False) -> Tensor:
        """Class capsules to their scores; with `pre_logits`, flattened."""
        if pre_logits:
            return features.flatten(1)
        return length(features) / math.sqrt(features.shape[2])


def _convolution(map_chans: int, chans: int) -> tuple[nn.Module, ...]:
    # Keras defaults; its momentum of 0.99 is 0.01 in PyTorch.
    norm = nn.BatchNorm2d(chans, eps=1e-3, momentum=0.01)
    return MinimalConv2d(map_chans, chans, 3, padding=1), norm, nn.ReLU()


# Choi et al. 2019, from the released code. The learning rate is halved after epoch 50, so not in a
# run of 20 epochs; in addition, the optimizer divides it by 1 + 1e-4 steps.
RECIPE: Recipe = {
    "epochs": 20,
    "batch_size": 100,
    "optimizer": "rmsprop",
    "lr": 1e-3,
    "schedule": "constant",
    "step_decay": 1e-4,
    "weight_decay": 0.0,
    "augment": False,
}

CIFAR10_RECIPE: Recipe = {
    **RECIPE,
    "epochs": 200,
    "schedule": "step",
    "lr_decay": 0.5,
    "drops": "51/200",
}

PAPER = 'Choi, Seo, Im and Kang, "Attention routing between capsules", ICCV workshops 2019'

MIXED = (
    "In the released code every class capsule mixes entries of all ten parents; here parents stay "
    "separate, as in the paper."
)

PRESETS = {
    "ar_capsnet": Preset(
        ARCapsNet,
        "attention routing (AR-CapsNet, Choi 2019), MNIST variant",
        recipe=RECIPE,
        paper=PAPER,
        choices=(
            "Published counts include 256 running statistics of batch norm, which are not "
            f"learnable parameters. {MIXED}"
        ),
        img_size=28,
        data=("mnist",),
    ),
    "ar_capsnet_cifar10": Preset(
        ARCapsNet,
        "attention routing (AR-CapsNet, Choi 2019), CIFAR-10 variant: 4 capsule layers",
        {"in_chans": 3, "layers": 4},
        recipe=CIFAR10_RECIPE,
        paper=PAPER,
        choices=(
            "The released command asks for four capsule layers, but the code has branches for "
            f"three; the fourth is one more layer like the third. {MIXED}"
        ),
        img_size=32,
        data=("cifar10",),
    ),
}
