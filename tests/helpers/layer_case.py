"""A capsule layer before its norm, drawn at random: by the kernel and by the reference."""

from dataclasses import dataclass
from functools import partial

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import conv2d

from clustercaps.kernels.cluster_cpu import fused_capsules
from clustercaps.routing import cluster_route


@dataclass(frozen=True)
class Case:
    batch: int = 2
    in_channels: int = 2
    in_dim: int = 3
    height: int = 7
    width: int = 6
    clusters: int = 1
    votes: int = 4
    out_channels: int = 2
    out_dim: int = 3
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    bias: bool = True
    uniform: bool = False
    eps: float = 1e-3

    def tensors(self, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
        """Input, weight and, if there is one, bias."""
        draw = torch.Generator().manual_seed(seed)
        rows = self.in_channels * self.clusters * self.votes * self.out_channels * self.out_dim
        shapes = [
            (self.batch, self.in_channels, self.in_dim, self.height, self.width),
            (rows, self.in_dim, self.kernel, self.kernel),
            (rows,),
        ]
        drawn = [torch.randn(s, generator=draw, dtype=torch.float64) for s in shapes]
        drawn[1] /= (self.in_dim * self.kernel**2) ** 0.5
        return [t.to(dtype) for t in drawn[: 3 if self.bias else 2]]

    def fused(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return fused_capsules(
            *(x, weight, bias, self.stride, self.padding, self.clusters, self.votes),
            *(self.out_channels, self.uniform, self.eps, False, None, None, 0.0),
        )[0]

    def reference(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        cast = conv2d(
            x.flatten(1, 2), weight, bias, self.stride, self.padding, groups=self.in_channels
        )
        shape = (self.in_channels * self.clusters, self.votes, self.out_channels, self.out_dim)
        route = partial(cluster_route, routing="uniform" if self.uniform else "cluster")
        return route(cast.unflatten(1, shape), eps=self.eps)[0]


def gradients(function, tensors: list[Tensor], seed: int = 1) -> list[Tensor]:
    """The result and the gradient of every tensor, for a random gradient of the result."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    result = function(*leaves)
    draw = torch.Generator().manual_seed(seed)
    pull = torch.randn(result.shape, generator=draw, dtype=torch.float64).to(result.dtype)
    return [result.detach(), *torch.autograd.grad(result, leaves, pull)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kernel = draw(st.integers(1, 5))
    padding = draw(st.integers(0, 3))
    smallest = max(1, kernel - 2 * padding)
    return Case(
        batch=draw(st.integers(1, 5)),
        in_channels=draw(st.integers(1, 4)),
        in_dim=draw(st.integers(1, 9)),
        height=draw(st.integers(smallest, smallest + 14)),
        width=draw(st.integers(smallest, smallest + 14)),
        clusters=draw(st.integers(1, 3)),
        votes=draw(st.integers(1, 11)),
        out_channels=draw(st.integers(1, 3)),
        out_dim=draw(st.integers(1, 7)),
        kernel=kernel,
        stride=draw(st.integers(1, 4)),
        padding=padding,
        bias=draw(st.booleans()),
        uniform=draw(st.sampled_from([False, False, False, True])),
    )
