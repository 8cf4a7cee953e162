"""DCNet with three levels (DCNet++): capsules of three depths, each with its own class capsules.

Phaye, Sikka, Dhall and Bathula, "Multi-level dense capsule networks", ACCV 2018. Three consecutive
dense blocks; each feeds primary capsules, and the next block takes their channels before the
squash. Every level has class capsules, and a fourth layer takes the capsules of all levels. In
training each of the four has a margin loss; the score is the length of all four concatenated.

The decoder reconstructs only one colour channel, as in the released code, which does not say which:
ours reconstructs the first.
"""

from typing import Any

import torch
from torch import Tensor, nn

from clustercaps.layers.decoders import DenseDecoder
from clustercaps.layers.primary import PrimaryCapsules
from clustercaps.layers.votes import VectorVotes
from clustercaps.losses import margin_loss, reconstruction_loss
from clustercaps.models.base import ClassCapsules, LengthClassifier, TrainingBatch
from clustercaps.models.peers.dcnet import RECIPE, DenseBlock
from clustercaps.models.preset import Preset
from clustercaps.routing import create_routing
from clustercaps.routing.squash import length
from clustercaps.utils.sizes import ImageBatch, Size, conv_size

# Kernel size of the primary capsules of each level.
KERNELS = (5, 5, 3)


class DCNet3(LengthClassifier):
    """Three dense blocks with primary capsules, four layers of class capsules, dense decoder.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        layers: Convolutions of each dense block.
        growth: Channels of each convolution.
        types: Primary capsule types of each level.
        primary_dim: Dimension of a primary capsule.
        dims: Dimensions of the class capsules of the three levels and of the fourth layer.
        routing: A name from `clustercaps.list_routings()` whose capsules have lengths.
        routing_options: Arguments of the routing, such as `{"iterations": 1}`.
        vote_std: Standard deviation of the initial vote matrices; our choice. With CapsNet's 0.1,
            the sums of so many votes saturate the lengths of all classes.
        decoder: Whether to reconstruct the first colour channel from the capsules of its class.
        reconstruction: Weight of the reconstruction loss, summed over pixels.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        img_size: Size = 32,
        layers: int = 8,
        growth: int = 32,
        types: int = 12,
        primary_dim: int = 8,
        dims: tuple[int, int, int, int] | list[int] = (16, 12, 10, 16),
        routing: str = "dynamic",
        routing_options: dict[str, Any] | None = None,
        vote_std: float = 0.01,
        decoder: bool = True,
        reconstruction: float = 0.0005,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction)
        # JSON turns a tuple into a list.
        if len(dims) != 4:
            raise ValueError(f"dims must be four integers, three levels and all, got {dims}")
        self.dims = list(dims)
        self.blocks, self.primaries = nn.ModuleList(), nn.ModuleList()
        chans, size = in_chans, self.img_size
        children = []
        for level, kernel_size in enumerate(KERNELS, 1):
            block = DenseBlock(chans, layers, growth)
            primary = PrimaryCapsules(block.out_chans, types, primary_dim, kernel_size)
            children.append(primary.count(size, f"primary capsules of level {level}"))
            chans, size = types * primary_dim, conv_size(size, kernel_size, 2)
            self.blocks.append(block)
            self.primaries.append(primary)
        children.append(sum(children))
        self.votes = nn.ModuleList(
            VectorVotes(count, primary_dim, num_classes, dim, vote_std)
            for count, dim in zip(children, self.dims, strict=True)
        )
        self.routings = nn.ModuleList(
            create_routing(routing, count, num_classes, dim, **routing_options or {})
            for count, dim in zip(children, self.dims, strict=True)
        )
        features = num_classes * sum(self.dims)
        self.decoder = DenseDecoder(features, 1, self.img_size, 600) if decoder else None

    def forward_features(self, images: ImageBatch) -> ClassCapsules:
        """Images to one capsule per class: those of all levels, concatenated."""
        self.check_images(images)
        maps, levels = images, []
        for block, primary in zip(self.blocks, self.primaries, strict=True):
            assert isinstance(primary, PrimaryCapsules)
            channels = primary.conv(block(maps))
            levels.append(primary.cut(channels))
            maps = channels.relu()
        levels.append(torch.cat(levels, 1))
        layers = zip(levels, self.votes, self.routings, strict=True)
        return torch.cat([routing(votes(level)).capsules for level, votes, routing in layers], 2)

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Four margin losses, and the reconstruction loss of the first channel."""
        features = self.forward_features(batch.images)
        loss = torch.stack(
            [margin_loss(length(part), batch.labels) for part in features.split(self.dims, 2)]
        ).sum(0)
        if self.decoder is not None and self.reconstruction:
            drawn = self.reconstruct(features, batch.labels)
            loss = loss + self.reconstruction * reconstruction_loss(drawn, batch.pixels[:, :1])
        return loss, self.forward_head(features)


PAPER = 'Phaye, Sikka, Dhall and Bathula, "Multi-level dense capsule networks", ACCV 2018'

PRESETS = {
    "dcnet3": Preset(
        DCNet3,
        "DCNet with three levels (Phaye 2018), CIFAR-10 variant",
        recipe={**RECIPE, "batch_size": 64},
        paper=PAPER,
        choices=(
            "The decoder reconstructs one colour channel, as in the released code, which does not "
            "say which: here it is the first. The standard deviation of the initial vote "
            "matrices is our choice."
        ),
        img_size=32,
        data=("cifar10",),
    ),
}
