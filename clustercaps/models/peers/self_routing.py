"""Self-routing capsules after a ResNet-20.

Hahn, Pyeon and Kim, "Self-routing capsule networks", NeurIPS 2019. Two convolutions compute poses
and activations of the primary capsules; convolutional capsule layers may follow; the class layer
takes all capsules of the last feature map and returns only activations, which sum to 1. Their
logarithms are the logits, so cross-entropy is the negative log-likelihood of the true class.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.resnet import ResNetFront
from clustercaps.layers.self_routing import (
    SelfRoutingCapsules2d,
    SelfRoutingClasses,
)
from clustercaps.models.base import ImageClassifier
from clustercaps.models.preset import Preset, Recipe
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import ImageBatch, Size, conv_size

# Added before the logarithm of an activation, which may be 0.
SMALLEST = 1e-8


class SelfRoutingNet(ImageClassifier):
    """ResNet, primary capsules, capsule layers, classes.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Channels of the first of three ResNet stages; each next stage has twice as many.
        blocks: Basic blocks of each stage; 3 is a ResNet-20.
        types: Capsule types.
        dim: Dimension of a pose.
        strides: Strides of the convolutional capsule layers between primary and class capsules.
    """

    min_classes = 1

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        img_size: Size = 32,
        width: int = 16,
        blocks: int = 3,
        types: int = 32,
        dim: int = 16,
        strides: list[int] | tuple[int, ...] = (),
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        for name, value in (("width", width), ("blocks", blocks), ("types", types), ("dim", dim)):
            at_least(name, value, 1)
        stages = [(width, blocks), (2 * width, blocks), (4 * width, blocks)]
        self.front = ResNetFront(in_chans, stages, learned_shortcut=False)
        chans = self.front.out_chans
        self.activation = nn.Sequential(
            nn.Conv2d(chans, types, 3, padding=1, bias=False), nn.BatchNorm2d(types), nn.Sigmoid()
        )
        self.pose = nn.Sequential(
            nn.Conv2d(chans, types * dim, 3, padding=1, bias=False), nn.BatchNorm2d(types * dim)
        )
        # As in the released code, for all convolutions.
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight)
        self.capsules = nn.ModuleList(
            SelfRoutingCapsules2d(types, types, dim, stride) for stride in strides
        )
        size = self.front.out_size(self.img_size)
        for stride in strides:
            size = conv_size(size, 3, stride, padding=1)
        self.types, self.dim = types, dim
        self.child_count = types * size[0] * size[1]
        self.build_classifier()

    def build_classifier(self) -> tuple[nn.Module, ...]:
        """Create the class layer."""
        self.classes = SelfRoutingClasses(self.child_count, self.dim, self.num_classes)
        return (self.classes,)

    def forward_features(self, images: ImageBatch) -> Float[Tensor, "batch children numbers"]:
        """Images to the capsules before the classes: activation first, then the pose."""
        self.check_images(images)
        maps = self.front(images)
        activations = self.activation(maps)
        poses = self.pose(maps).unflatten(1, (self.types, self.dim))
        for layer in self.capsules:
            poses, activations = layer(poses, activations)
        both = torch.cat([activations.unsqueeze(2), poses], 2)
        return both.permute(0, 1, 3, 4, 2).flatten(1, 3)

    def forward_head(
        self, features: Float[Tensor, "batch children numbers"], pre_logits: bool = False
    ) -> Tensor:
        """Capsules to log class activations; with `pre_logits`, flattened."""
        if pre_logits:
            return features.flatten(1)
        shares: Tensor = self.classes(features[..., 1:], features[..., 0])
        return (shares + SMALLEST).log()


# Hahn et al. 2019, from the released code, for CIFAR-10.
RECIPE: Recipe = {
    "epochs": 350,
    "batch_size": 64,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "schedule": "step",
    "lr_decay": 0.1,
    "drops": "150/350,250/350",
    "weight_decay": 1e-4,
}

SVHN_RECIPE: Recipe = {**RECIPE, "epochs": 200, "drops": "100/200,150/200"}

PAPER = 'Hahn, Pyeon and Kim, "Self-routing capsule networks", NeurIPS 2019'

PRESETS = {
    "self_routing_1": Preset(
        SelfRoutingNet,
        "self-routing (Hahn 2019) after a ResNet-20, class layer only",
        recipe=RECIPE,
        paper=PAPER,
        img_size=32,
        data=("cifar10", "svhn"),
        recipes={"svhn": SVHN_RECIPE},
    ),
    "self_routing_2": Preset(
        SelfRoutingNet,
        "self-routing (Hahn 2019) after a ResNet-20, two capsule layers",
        {"strides": [2]},
        recipe=RECIPE,
        paper=PAPER,
        img_size=32,
        data=("cifar10", "svhn"),
        recipes={"svhn": SVHN_RECIPE},
    ),
}
