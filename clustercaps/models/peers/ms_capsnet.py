"""MS-CapsNet: primary capsules of three dimensions from three depths, routed together.

Xiang, Zhang, Tang, Zou and Xu, "MS-CapsNet: a novel multi-scale capsule network", IEEE Signal
Processing Letters 25, 2018. After one large convolution, every capsule type has three small stacks:
capsules of dimension 4, 8 and 12 from one, two and three convolutions. All vote for the classes; in
training, dropout removes whole capsules with all their votes.

Layers and counts are those of the released script for CIFAR-10, which has more parameters than the
paper prints. The dropout rate is not known. The released routing takes the softmax over children,
with equal weights of 1 in the first of four passes; the default here is dynamic routing, and
`routing_over="children"` matches the script.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.layers.votes import VectorVotes
from clustercaps.models.base import ClassCapsules, LengthClassifier
from clustercaps.models.preset import Preset, Recipe
from clustercaps.routing.base import Routed, Routing, Votes, agreement, weighted_votes
from clustercaps.routing.dynamic import DynamicRouting
from clustercaps.routing.squash import length, squash
from clustercaps.utils.errors import at_least, unknown
from clustercaps.utils.sizes import ImageBatch, Size, conv_size

# Dimensions of the capsules of the three depths.
DIMS = (4, 8, 12)


class Scales(nn.Module):
    """Three stacks per capsule type, from feature maps to capsules of dimension 4, 8 and 12.

    The stacks of one depth are one convolution: the first takes all channels anyway, and the others
    have one group per type.

    Args:
        map_chans: Channels of the input feature maps.
        types: Capsule types of each depth.
    """

    def __init__(self, map_chans: int, types: int) -> None:
        super().__init__()
        at_least("types", types, 1)
        self.types = types
        self.low = nn.Conv2d(map_chans, types * DIMS[0], 9, stride=2)
        self.mid = nn.Sequential(
            nn.Conv2d(map_chans, types * 16, 5, stride=2),
            nn.BatchNorm2d(types * 16),
            nn.Tanh(),
            nn.Conv2d(types * 16, types * DIMS[1], 3, groups=types),
        )
        self.high = nn.Sequential(
            nn.Conv2d(map_chans, types * 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(types * 32, types * 16, 3, groups=types),
            nn.BatchNorm2d(types * 16),
            nn.Tanh(),
            nn.Conv2d(types * 16, types * DIMS[2], 3, groups=types),
        )

    def forward(self, maps: Float[Tensor, "batch map_chans height width"]) -> list[Tensor]:
        """Feature maps to the capsules of each depth [B, capsules, dim]."""
        capsules = []
        for stack, dim in zip((self.low, self.mid, self.high), DIMS, strict=True):
            places = stack(maps).unflatten(1, (self.types, dim)).permute(0, 1, 3, 4, 2)
            capsules.append(squash(places.flatten(1, 3)))
        return capsules


class MSCapsNet(LengthClassifier):
    """Convolution, primary capsules of three depths, capsule dropout, routed class capsules.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Channels of the first convolution.
        kernel_size: Its kernel size; 13 for 32x32 and 9 for 28x28 give 6x6 positions.
        types: Capsule types of each depth.
        dim: Dimension of a class capsule.
        iterations: Number of routing iterations.
        routing_over: "parents" for dynamic routing, "children" for the routing of the released
            script.
        drop: Dropout rate of whole capsules in training; our choice.
        vote_std: Standard deviation of the initial vote matrices; the 0.5 of the released script is
            for its routing. With CapsNet's 0.1, the sums of so many votes saturate the lengths of
            all classes.
    """

    decoder: None

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        img_size: Size = 32,
        width: int = 256,
        kernel_size: int = 13,
        types: int = 30,
        dim: int = 16,
        iterations: int = 3,
        routing_over: str = "parents",
        drop: float = 0.2,
        vote_std: float = 0.03,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction=0.0)
        if routing_over not in ROUTINGS_OVER:
            raise ValueError(unknown("routing_over", routing_over, ROUTINGS_OVER))
        if not 0 <= drop < 1:
            raise ValueError(f"drop must be in [0, 1), got {drop}")
        self.conv = nn.Conv2d(in_chans, width, kernel_size)
        self.scales = Scales(width, types)
        # All three depths end in feature maps of this size.
        size = conv_size(self.img_size, kernel_size, layer="first convolution")
        height, breadth = conv_size(size, 9, 2, layer="primary capsules")
        self.votes = nn.ModuleList(
            VectorVotes(types * height * breadth, in_dim, num_classes, dim, vote_std)
            for in_dim in DIMS
        )
        children = len(DIMS) * types * height * breadth
        self.routing = ROUTINGS_OVER[routing_over](children, num_classes, dim, iterations)
        self.drop = drop
        self.decoder = None

    def forward_features(self, images: ImageBatch) -> ClassCapsules:
        """Images to one capsule per class."""
        return self.route(images).capsules

    def route(self, images: ImageBatch) -> Routed:
        """Images to class capsules, with the coupling coefficients of the primary capsules."""
        self.check_images(images)
        scales = self.scales(self.conv(images).relu())
        votes = torch.cat([vote(s) for vote, s in zip(self.votes, scales, strict=True)], 1)
        votes = drop_capsules(votes, self.drop, self.training)
        return self.routing(votes)


def drop_capsules(
    votes: Float[Tensor, "batch children parents dim"], share: float, training: bool = True
) -> Float[Tensor, "batch children parents dim"]:
    """Dropout of whole children with all their votes."""
    if not training or not share:
        return votes
    return votes * F.dropout(torch.ones_like(votes[:, :, :1, :1]), share)


def route_over_children(votes: Votes, iterations: int = 3) -> Routed:
    """The routing of the released script: children compete for a parent, after a plain sum."""
    coupling = torch.ones_like(votes[:, :, :, 0])
    logits = torch.zeros_like(coupling)
    capsules = squash(weighted_votes(coupling, votes), dim=2)
    for _ in range(iterations):
        logits = logits + agreement(votes, capsules)
        coupling = logits.softmax(1)
        capsules = squash(weighted_votes(coupling, votes), dim=2)
    return Routed(capsules, length(capsules, dim=2), coupling)


class RoutingOverChildren(Routing):
    """`route_over_children` as a module.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        iterations: Number of updates of the coupling coefficients.
    """

    competes_over = "children"

    def __init__(self, children: int, parents: int, dim: int, iterations: int = 3) -> None:
        super().__init__(children, parents, dim)
        at_least("iterations", iterations, 1)
        self.iterations = iterations

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `route_over_children`."""
        return route_over_children(votes, self.iterations)


ROUTINGS_OVER: dict[str, Callable[[int, int, int, int], Routing]] = {
    "children": RoutingOverChildren,
    "parents": DynamicRouting,
}

# Xiang et al. 2018, from the released script, which has no schedule.
RECIPE: Recipe = {
    "epochs": 50,
    "batch_size": 128,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "constant",
    "weight_decay": 1e-5,
}

PAPER = (
    'Xiang, Zhang, Tang, Zou and Xu, "MS-CapsNet: a novel multi-scale capsule network", IEEE '
    "Signal Processing Letters 25, 2018"
)
CHOICES = (
    "The released script has 12.3M parameters where the paper says 11.2M, and takes its softmax "
    "over children; routing here is dynamic routing, and routing_over=children matches the script. "
    "The dropout rate of capsules is our choice."
)

PRESETS = {
    "ms_capsnet": Preset(
        MSCapsNet,
        "capsules of three depths (Xiang 2018), for 32x32 images",
        reconstruction=True,
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("cifar10",),
    ),
    "ms_capsnet_28": Preset(
        MSCapsNet,
        "capsules of three depths, for 28x28 grey images",
        {"in_chans": 1, "kernel_size": 9},
        reconstruction=True,
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=28,
        data=("fashion-mnist",),
    ),
}
