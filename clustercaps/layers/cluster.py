"""A capsule layer: votes from one grouped convolution, routing, layer norm.

Axes: B batch, C capsule channels, D capsule dimension, H W feature map, K votes of a cluster,
I vote clusters of a parent (child channels x weight clusters per child).
"""

from typing import Any, Literal, NamedTuple, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.types import Device

from clustercaps import kernels
from clustercaps.layers.norm import MapNorm
from clustercaps.routing import (
    EPS,
    ClusterRouting,
    Routing,
    cluster_route,
    create_routing,
    get_routing,
    vote_statistics,
)
from clustercaps.utils.errors import at_least
from clustercaps.utils.hooks import may_bypass
from clustercaps.utils.sizes import Size, pair, show_size, windows_along

Children = Float[Tensor, "batch in_channels in_dim in_height in_width"]
Capsules = Float[Tensor, "batch channels dim height width"]

# Arguments of a layer that must be at least 1.
SIZES = (
    *("in_channels", "in_dim", "out_channels", "out_dim", "votes", "clusters", "kernel_size"),
    "stride",
)


class RoutingTrace(NamedTuple):
    """All intermediate results of a routing step.

    Attributes:
        votes: K votes of every cluster for every parent capsule.
        centroids: Means of the votes.
        spread: Standard deviations of the votes.
        weights: Routing weights; they sum to 1 over the clusters.
    """

    votes: Float[Tensor, "batch clusters votes channels dim height width"]
    centroids: Float[Tensor, "batch clusters channels dim height width"]
    spread: Float[Tensor, "batch clusters channels dim height width"]
    weights: Float[Tensor, "batch clusters channels dim height width"]


class CapsuleConv2d(nn.Module):
    """Convolutional capsule layer with any routing that needs only votes.

    Every child channel is read by `clusters` weight clusters. Each of them casts K = `votes` votes
    for every parent capsule, from a window of the child's feature map. The routing combines the
    centroids of the votes into the parent. Layer norm over (D, H, W), shared by the channels,
    follows.

    Args:
        in_channels: Child capsule channels. An image is one channel whose dimension is its number
            of colour channels.
        in_dim: Dimension of a child capsule.
        out_channels: Parent capsule channels.
        out_dim: Dimension of a parent capsule.
        votes: Votes in a cluster (the paper's K).
        clusters: Weight clusters per child channel (the paper's N).
        kernel_size: Side of the window of a vote.
        stride: Stride of the window.
        padding: Zero padding of the child feature maps; `kernel_size // 2` by default.
        in_size: Height and width of the child feature maps. The norm has one learnable scale and
            shift per dimension and position, so it needs their size; without `in_size` the norm
            has no learnable parameters, and the layer accepts feature maps of any size.
        norm: Whether to apply layer norm.
        routing: A name from `clustercaps.list_routings()`. Routings other than "cluster" and
            "uniform" treat every vote as a child; their learnable parameters are in `router`.
        eps: Added to the variance of the votes.
        bias: Whether votes have a bias.
        backend: "auto", or a name from `clustercaps.kernels.BACKENDS`.
    """

    def __init__(
        self,
        in_channels: int,
        in_dim: int,
        out_channels: int,
        out_dim: int,
        votes: int,
        clusters: int = 1,
        kernel_size: int = 3,
        stride: int = 1,
        padding: int | None = None,
        in_size: Size | None = None,
        norm: bool = True,
        routing: str = "cluster",
        eps: float = EPS,
        bias: bool = True,
        backend: str = "auto",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = (in_channels, in_dim, out_channels, out_dim, votes, clusters, kernel_size, stride)
        for name, value in zip(SIZES, sizes, strict=True):
            at_least(name, value, 1)
        padding = kernel_size // 2 if padding is None else padding
        at_least("padding", padding, 0)
        if eps < 0:
            raise ValueError(f"eps must not be negative, got {eps}")

        self.in_channels, self.in_dim = in_channels, in_dim
        self.out_channels, self.out_dim = out_channels, out_dim
        self.votes, self.clusters = votes, clusters
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.in_size = None if in_size is None else pair(in_size)
        self.routing, self.eps, self.backend = routing, eps, backend
        self.router: Routing | None = None
        if not issubclass(get_routing(routing), ClusterRouting):
            self.router = self._build_router()
            self.router.to(device=device, dtype=dtype)
        # One group per child channel; its outputs are (clusters, votes, out_channels, out_dim).
        rows = in_channels * clusters * votes * out_channels * out_dim
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        window = (kernel_size, stride, padding)
        self.vote = nn.Conv2d(
            in_channels * in_dim, rows, *window, groups=in_channels, bias=bias, **place
        )
        self.norm = None
        if norm:
            map_size = None if self.in_size is None else self.out_size(self.in_size)
            self.norm = MapNorm(out_dim, map_size, **place)

    def out_size(self, in_size: Size) -> tuple[int, int]:
        """Height and width of the parent feature maps for child feature maps of this size."""
        height, width = (
            windows_along(side, self.kernel_size, self.stride, self.padding)
            for side in pair(in_size)
        )
        if height < 1 or width < 1:
            smallest = max(1, self.kernel_size - 2 * self.padding)
            raise ValueError(
                f"feature maps of {show_size(in_size)} are too small for "
                f"kernel_size={self.kernel_size}, padding={self.padding}; use at least "
                f"{smallest}x{smallest}"
            )
        return height, width

    @overload
    def forward(self, x: Children, trace: Literal[False] = False) -> Capsules: ...
    @overload
    def forward(self, x: Children, trace: Literal[True]) -> tuple[Capsules, RoutingTrace]: ...
    def forward(self, x: Children, trace: bool = False) -> Capsules | tuple[Capsules, RoutingTrace]:
        """Child capsules [B, C, D, H, W] to parent capsules [B, C', D', H', W'].

        With `trace`, also returns the votes, centroids, spread and routing weights.
        """
        self._check_input(x)
        if self.router is not None:
            if trace:
                raise ValueError(
                    f"trace=True needs cluster or uniform routing, not {self.routing!r}; "
                    "layer.router(layer.cast_votes(x).flatten(1, 2)) returns coupling coefficients"
                )
            capsules: Tensor = self.router(self.cast_votes(x).flatten(1, 2)).capsules
            return capsules if self.norm is None else self.norm(capsules)
        if not trace:
            norm, numbers = self.norm, None
            if isinstance(norm, MapNorm) and may_bypass(norm, MapNorm):
                numbers = kernels.NormNumbers(norm.weight, norm.bias, norm.eps)
            capsules = kernels.cluster_capsules(
                x,
                self.vote,
                clusters=self.clusters,
                votes=self.votes,
                out_channels=self.out_channels,
                routing=self.routing,
                eps=self.eps,
                norm=numbers,
                backend=self.backend,
            )
            return capsules if numbers is not None or norm is None else norm(capsules)
        votes = self.cast_votes(x)
        capsules, weights = cluster_route(votes, routing=self.routing, eps=self.eps)
        if self.norm is not None:
            capsules = self.norm(capsules)
        return capsules, RoutingTrace(votes, *vote_statistics(votes, self.eps), weights)

    def cast_votes(
        self, x: Children
    ) -> Float[Tensor, "batch clusters votes channels dim height width"]:
        """The votes, which the fused kernels never store."""
        votes = self.vote(x.flatten(1, 2))  # [B, I*K*C'*D', H', W']
        return votes.unflatten(
            1, (self.in_channels * self.clusters, self.votes, self.out_channels, self.out_dim)
        )

    def _build_router(self) -> Routing:
        children = self.in_channels * self.clusters * self.votes
        if get_routing(self.routing).takes_poses:
            raise ValueError(
                f"{self.routing!r} routing needs the pose of each child, which this layer does not "
                "have; use its own networks, see `clustercaps models`"
            )
        return create_routing(self.routing, children, self.out_channels, self.out_dim)

    def _check_input(self, x: Tensor) -> None:
        if x.ndim != 5:
            raise ValueError(
                "a capsule layer expects [batch, channels, dim, height, width], got shape "
                f"{tuple(x.shape)}; for images, use images.unsqueeze(1)"
            )
        if (x.shape[1], x.shape[2]) != (self.in_channels, self.in_dim):
            raise ValueError(
                f"expected {self.in_channels} channels of dim {self.in_dim}, got {x.shape[1]} of "
                f"dim {x.shape[2]}; in_channels and in_dim must match the previous layer"
            )
        height, width = x.shape[3:]
        # Compared one by one, not as tuples: under torch.compile they may be symbolic.
        wanted = self.in_size
        other = wanted is not None and (height != wanted[0] or width != wanted[1])
        if other and self.norm is not None:
            raise ValueError(
                f"this layer was built for feature maps of {wanted}, got {(height, width)}; "
                "build it with this in_size, or without in_size for any size"
            )
        if min(height, width) + 2 * self.padding < self.kernel_size:
            self.out_size((height, width))

    def extra_repr(self) -> str:
        """Sizes, then arguments that differ from their defaults."""
        said = [
            f"{self.in_channels}x{self.in_dim} -> {self.out_channels}x{self.out_dim}",
            f"votes={self.votes}",
            f"clusters={self.clusters}",
            f"stride={self.stride}",
        ]
        if self.in_size is not None:
            said.append(
                f"maps={show_size(self.in_size)} -> {show_size(self.out_size(self.in_size))}"
            )
        if self.kernel_size != 3:
            said.append(f"kernel_size={self.kernel_size}")
        if self.padding != self.kernel_size // 2:
            said.append(f"padding={self.padding}")
        if self.routing != "cluster":
            said.append(f"routing={self.routing!r}")
        if self.norm is None:
            said.append("norm=False")
        return ", ".join(said)

    def __repr__(self) -> str:
        # One line: the submodules (a convolution, a norm) add no information.
        return f"{type(self).__name__}({self.extra_repr()})"


class ClusterCapsules2d(CapsuleConv2d):
    """Capsule layer with cluster routing: `CapsuleConv2d` with its default routing."""
