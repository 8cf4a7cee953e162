"""The networks of FRMS and FREM: convolutions, then two capsule layers with density estimation.

Zhang, Zhao, Wu and Zhou, "Fast dynamic routing based on weighted kernel density estimation", arXiv
1805.10807, 2018. A reconstruction: the code is not public. It is known that convolutions precede
the capsules, that images are 64x64, and that there are about 1.2M parameters; the layers below were
chosen to match, and have 1,240,480 parameters for FRMS (FREM: two more, its bandwidths) on 64x64
colour images. The margin loss is our choice as well.

A class capsule has the direction of its pose, and the activation of the routing as its length: for
FRMS the length of the pose itself, for FREM the share of the children of the class.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.primary import PrimaryCapsules
from clustercaps.layers.votes import VectorVotes
from clustercaps.layers.windows import cut_windows
from clustercaps.models.base import ClassCapsules, LengthClassifier
from clustercaps.models.preset import UNKNOWN_RECIPE, Preset
from clustercaps.routing import Routed, create_routing
from clustercaps.routing.squash import length
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import ImageBatch, Size, conv_size


class WindowVotes(nn.Module):
    """Votes of the capsules in a window, with weights shared over positions.

    Args:
        types: Child capsules per position.
        in_dim: Dimension of a child capsule.
        parents: Parents per position.
        dim: Dimension of a vote.
        kernel_size: Side of the window.
        stride: Stride of the window.
        std: Standard deviation of the initial weights.
    """

    def __init__(
        self,
        types: int,
        in_dim: int,
        parents: int,
        dim: int,
        kernel_size: int = 3,
        stride: int = 2,
        std: float = 0.1,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride
        shape = (types, kernel_size, kernel_size, parents, dim, in_dim)
        self.weight = nn.Parameter(torch.empty(shape))
        nn.init.trunc_normal_(self.weight, std=std, a=-2 * std, b=2 * std)

    def forward(
        self, capsules: Float[Tensor, "batch types in_dim height width"]
    ) -> Float[Tensor, "batch children parents dim out_height out_width"]:
        """Capsules to votes; children are ordered by type, window row and window column."""
        windows = cut_windows(capsules, self.kernel_size, self.stride)
        return torch.einsum("cpde,bceyx->bcpdyx", self.weight.flatten(0, 2), windows)

    def spread(
        self, activations: Float[Tensor, "batch types height width"]
    ) -> Float[Tensor, "batch children out_height out_width"]:
        """Activations of the children of every window, in the order of their votes."""
        return cut_windows(activations, self.kernel_size, self.stride)


class KDECapsNet(LengthClassifier):
    """Two convolutions, primary capsules, a convolutional capsule layer, class capsules.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        widths: Channels of the two convolutions.
        types: Capsule types per position, in both layers before the classes.
        dim: Capsule dimension.
        routing: A routing with activations of children and parents, "frms" or "frem".
        routing_options: Arguments of the routing, such as `{"iterations": 1}`.
        vote_std: Standard deviation of the initial vote matrices; larger than for dynamic routing,
            since votes are averaged, not summed.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        img_size: Size = 64,
        widths: tuple[int, int] | list[int] = (64, 96),
        types: int = 16,
        dim: int = 16,
        routing: str = "frms",
        routing_options: dict[str, Any] | None = None,
        vote_std: float = 1.0,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction=0.0)
        for name, value in (("types", types), ("dim", dim)):
            at_least(name, value, 1)
        if len(widths) != 2:
            raise ValueError(f"widths must be two channel counts, got {widths}")
        first, second = widths
        self.stem = nn.Sequential(
            nn.Conv2d(in_chans, first, 5, stride=2, padding=2),
            nn.BatchNorm2d(first),
            nn.ReLU(),
            nn.Conv2d(first, second, 3, stride=2, padding=1),
            nn.BatchNorm2d(second),
            nn.ReLU(),
        )
        size = conv_size(conv_size(self.img_size, 5, 2, 2), 3, 2, 1)
        self.primary = PrimaryCapsules(second, types, dim, 3, 2, 1)
        self.primary_size = conv_size(size, 3, 2, 1)
        self.types = types
        options = routing_options or {}
        self.window_votes = WindowVotes(types, dim, types, dim, std=vote_std)
        self.window_routing = create_routing(routing, types * 9, types, dim, **options)
        height, width = conv_size(self.primary_size, 3, 2, layer="windows of capsules")
        children = types * height * width
        self.votes = VectorVotes(children, dim, num_classes, dim, vote_std)
        self.routing = create_routing(routing, children, num_classes, dim, **options)
        self.decoder = None

    def forward_features(self, images: ImageBatch) -> ClassCapsules:
        """Images to one capsule per class, with its activation as length."""
        capsules, activations, _ = self.route(images)
        assert activations is not None
        return capsules / length(capsules, keepdim=True) * activations.unsqueeze(2)

    def route(self, images: ImageBatch) -> Routed:
        """Images to class poses, activations, and coupling coefficients."""
        self.check_images(images)
        flat = self.primary(self.stem(images))
        poses = flat.unflatten(1, (self.types, *self.primary_size)).permute(0, 1, 4, 2, 3)
        seen = self.window_votes.spread(length(poses, dim=2))
        poses, activations, _ = self.window_routing(self.window_votes(poses), seen)
        # Ordered by type, then row and column, with the capsule dimension last.
        children = poses.permute(0, 1, 3, 4, 2).flatten(1, 3)
        return self.routing(self.votes(children), activations.flatten(1))


PAPER = (
    'Zhang, Zhao, Wu and Zhou, "Fast dynamic routing based on weighted kernel density '
    'estimation", arXiv 1805.10807, 2018'
)

PRESETS = {
    "frms_capsnet": Preset(
        KDECapsNet,
        "mean-shift routing (Zhang 2018), about 1.2M parameters",
        reconstruction=True,
        recipe=UNKNOWN_RECIPE,
        paper=PAPER,
        choices=(
            "The code for images is not public: the layers are our choice, made to fit the "
            "published 64x64 images and 1.2M parameters, and so are the margin loss and the "
            "recipe. Routing follows the code of a co-author for text."
        ),
        img_size=64,
        data=("smallnorb", "fashion-mnist", "cifar10"),
    ),
    "frem_capsnet": Preset(
        KDECapsNet,
        "routing by a mixture of kernels (Zhang 2018), about 1.2M parameters",
        # The initial bandwidth is about the distance of the initial votes from their mean.
        {"routing": "frem", "routing_options": {"bandwidth": 2.0}, "vote_std": 0.5},
        reconstruction=True,
        recipe=UNKNOWN_RECIPE,
        paper=PAPER,
        choices=(
            "The code is not public: routing is our reading of the paper. The layers are our "
            "choice, made to fit the published 64x64 images and 1.2M parameters, and so are the "
            "margin loss and the recipe."
        ),
        img_size=64,
        data=("smallnorb", "fashion-mnist", "cifar10"),
    ),
}
