"""Heinsen's network for smallNORB: convolutions with coordinates, and two routings.

Heinsen, "An algorithm for routing capsules in all domains", 2019 (arXiv 1911.00792). In the first
routing the capsules of all positions vote, with shared matrices; the second one routes to the
classes, whose activations are the logits.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.heinsen import HeinsenCapsules
from clustercaps.models.base import ImageClassifier
from clustercaps.models.preset import Preset, Recipe
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import ImageBatch, Size, conv_size


class HeinsenNet(ImageClassifier):
    """Convolutions, scores and poses from 1x1 convolutions, two routings.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels; a stereo pair has 2.
        img_size: Height and width of the images.
        width: Channels of the convolutions.
        strides: Strides of the 3x3 convolutions, which have no padding.
        types: Capsules per position.
        parents: Capsules between the two routings.
        side: Rows and columns of a pose.
        iterations: Number of iterations.
        checkpoint: No effect. The first routing, whose votes would be large, never stores them, and
            recomputes itself in the backward pass; stored settings may still name this argument.
    """

    min_classes = 1

    def __init__(
        self,
        num_classes: int = 5,
        in_chans: int = 2,
        img_size: Size = 96,
        width: int = 64,
        strides: list[int] | tuple[int, ...] = (1, 2, 1, 2, 1, 2),
        types: int = 64,
        parents: int = 64,
        side: int = 4,
        iterations: int = 3,
        checkpoint: bool = False,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        sizes = {"width": width, "types": types, "parents": parents, "side": side}
        for name, value in sizes.items():
            at_least(name, value, 1)
        self.types, self.parents, self.side = types, parents, side
        self.iterations = iterations
        height, width_of_image = size = self.img_size
        rows = torch.linspace(-1, 1, height).view(-1, 1).expand(size)
        columns = torch.linspace(-1, 1, width_of_image).expand(size)
        # Not in the state dict: it depends only on the size.
        self.register_buffer("coordinates", torch.stack([rows, columns])[None], persistent=False)
        # Two additional channels with the position of every pixel.
        chans = in_chans + 2
        layers: list[nn.Module] = []
        for number, stride in enumerate(strides, 1):
            size = conv_size(size, 3, stride, layer=f"convolution {number} of {len(strides)}")
            conv = nn.Conv2d(chans, width, 3, stride)
            # As in the released code; the 1x1 convolutions below use PyTorch's initialisation.
            nn.init.kaiming_normal_(conv.weight)
            assert conv.bias is not None
            nn.init.zeros_(conv.bias)
            layers += [nn.BatchNorm2d(chans), conv, nn.SiLU()]
            chans = width
        self.layers = nn.Sequential(*layers)
        self.score = nn.Sequential(nn.BatchNorm2d(chans), nn.Conv2d(chans, types, 1))
        self.pose = nn.Sequential(nn.BatchNorm2d(chans), nn.Conv2d(chans, types * side**2, 1))
        children = types * size[0] * size[1]
        self.capsules = HeinsenCapsules(children, parents, side, iterations, shared=True)
        self.build_classifier()

    def build_classifier(self) -> tuple[nn.Module, ...]:
        """Create the second routing."""
        self.classes = HeinsenCapsules(
            self.parents, self.num_classes, self.side, self.iterations, shared=False
        )
        return (self.classes,)

    def forward_features(self, images: ImageBatch) -> Float[Tensor, "batch parents numbers"]:
        """Images to the capsules before the classes: score first, then the pose."""
        self.check_images(images)
        places = self.get_buffer("coordinates").to(images.dtype)
        places = places.expand(images.shape[0], -1, -1, -1)
        maps = self.layers(torch.cat([images, places], 1))
        scores = self.score(maps).flatten(1)
        poses = self.pose(maps).unflatten(1, (self.types, self.side, self.side))
        poses = poses.permute(0, 1, 4, 5, 2, 3).flatten(1, 3)
        routed = self.capsules(poses, scores)
        return torch.cat([routed.activations.unsqueeze(2), routed.capsules], 2)

    def forward_head(
        self, features: Float[Tensor, "batch parents numbers"], pre_logits: bool = False
    ) -> Tensor:
        """Capsules to the scores of the classes; with `pre_logits`, flattened."""
        if pre_logits:
            return features.flatten(1)
        poses = features[..., 1:].unflatten(2, (self.side, self.side))
        logits: Tensor = self.classes(poses, features[..., 0]).activations
        return logits


# Heinsen 2019, from the released notebook, without its mixup: one cycle, in which beta1 decreases
# by a factor of 0.9 while the learning rate increases in the first tenth of the run.
RECIPE: Recipe = {
    "epochs": 50,
    "batch_size": 20,
    "optimizer": "radam",
    "lr": 5e-4,
    "schedule": "cosine",
    "lr_floor": 1e-5,
    "warmup_fraction": 0.1,
    "beta1_low": 0.81,
    "weight_decay": 0.0,
}

PAPER = 'Heinsen, "An algorithm for routing capsules in all domains", arXiv 1911.00792, 2019'

PRESETS = {
    "heinsen_smallnorb": Preset(
        HeinsenNet,
        "Heinsen's routing (2019), smallNORB variant",
        recipe=RECIPE,
        paper=PAPER,
        choices="The mixup of the released notebook is omitted.",
        img_size=96,
        data=("smallnorb",),
    )
}
