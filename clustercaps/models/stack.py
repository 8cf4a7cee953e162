"""A stack of capsule layers on an image: the backbone of the paper's capsule networks."""

from collections.abc import Sequence

from torch import nn

from clustercaps.layers.cluster import Capsules, ClusterCapsules2d, RoutingTrace
from clustercaps.utils.sizes import ImageBatch, map_sizes


class CapsuleStack(nn.Module):
    """Capsule layers on an image, which is one capsule channel with a dimension per colour channel.

    Every parent capsule of every layer receives `channels * clusters` vote clusters: this many
    weight clusters read the image; in later layers `clusters` read each of the `channels` children.

    Args:
        in_dim: Channels of the image, or of the feature maps of a stem: its capsule dimension.
        img_size: Height and width of the image.
        channels: Capsule channels of a layer (the paper's C).
        clusters: Weight clusters per child channel (N).
        votes: Votes in a cluster (K).
        dim: Capsule dimension (D).
        strides: One stride per layer.
        paddings: One padding per layer; 1 by default.
        out_channels: Channels of the last layer, if not `channels`.
        norm: Whether layers apply layer norm.
        routing: A name from `clustercaps.list_routings()`.
        any_size: Accept images of any size: the norm has no scale and shift per position.
    """

    def __init__(
        self,
        in_dim: int,
        img_size: tuple[int, int],
        channels: int,
        clusters: int,
        votes: int,
        dim: int,
        strides: Sequence[int],
        paddings: Sequence[int] | None = None,
        out_channels: int | None = None,
        norm: bool = True,
        routing: str = "cluster",
        any_size: bool = False,
    ) -> None:
        super().__init__()
        paddings = paddings or [1] * len(strides)
        layers: list[ClusterCapsules2d] = []
        shapes = [(3, *shape) for shape in zip(strides, paddings, strict=True)]
        sizes = map_sizes(img_size, shapes)
        for number, (stride, padding) in enumerate(zip(strides, paddings, strict=True), 1):
            first, last = number == 1, number == len(strides)
            layers.append(
                ClusterCapsules2d(
                    in_channels=1 if first else channels,
                    in_dim=in_dim if first else dim,
                    out_channels=out_channels if last and out_channels else channels,
                    out_dim=dim,
                    votes=votes,
                    clusters=channels * clusters if first else clusters,
                    stride=stride,
                    padding=padding,
                    in_size=None if any_size else sizes[number - 1],
                    norm=norm,
                    routing=routing,
                )
            )
        self.layers = nn.ModuleList(layers)
        self.out_shape = (layers[-1].out_channels, dim, *sizes[-1])

    def forward(
        self, images: ImageBatch, trace: bool = False
    ) -> Capsules | tuple[Capsules, list[RoutingTrace]]:
        """Images to the capsules of the last layer; with `trace`, also a trace of every layer."""
        capsules = images.unsqueeze(1)
        traces = []
        for layer in self.layers:
            if trace:
                capsules, seen = layer(capsules, trace=True)
                traces.append(seen)
            else:
                capsules = layer(capsules)
        return (capsules, traces) if trace else capsules
