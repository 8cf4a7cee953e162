"""Convolutions whose window is the whole map, computed as one batched matrix product."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.routing.chunks import prefers_plain
from clustercaps.utils.derivatives import plain_gradients, wants_graph

Rows = Float[Tensor, "groups batch inputs"]
Weights = Float[Tensor, "groups outputs inputs"]


class WholeMapConv2d(nn.Conv2d):
    """An unpadded `nn.Conv2d` that is faster where the window is as large as the map.

    Its one output position is a linear map of all pixels of a group, for which the libraries'
    convolutions are slow: a window of 7x7 with 8 groups takes three times as long as the product.
    """

    def forward(
        self, maps: Float[Tensor, "batch in_chans height width"]
    ) -> Float[Tensor, "batch chans out_height out_width"]:
        """The convolution; maps of another size than the window take the usual way."""
        if maps.shape[-2:] != self.kernel_size or any(self.padding):
            return super().forward(maps)
        rows = maps.unflatten(1, (self.groups, -1)).flatten(2).transpose(0, 1)
        weights = self.weight.unflatten(0, (self.groups, -1)).flatten(2)
        products = grouped_linear(rows, weights).transpose(0, 1).flatten(1)
        if self.bias is not None:
            products = products + self.bias
        return products[..., None, None]


def grouped_linear(rows: Rows, weights: Weights) -> Float[Tensor, "groups batch outputs"]:
    """A linear map of its own for every group: x_g W_g^T."""
    if prefers_plain(rows) or torch.is_autocast_enabled(rows.device.type):
        return _plain_grouped_linear(rows, weights)
    return GroupedLinear.apply(rows, weights)


def _plain_grouped_linear(rows: Tensor, weights: Tensor) -> Tensor:
    return torch.bmm(rows, weights.transpose(1, 2))


class GroupedLinear(torch.autograd.Function):
    """`grouped_linear`; the gradient of the weights is computed in their own memory layout."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor) -> Tensor:
        """One product."""
        ctx.save_for_backward(rows, weights)
        return _plain_grouped_linear(rows, weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Of x: g W; of W: g^T x, which autograd would compute transposed and copy."""
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad
        if wants_graph(gradient):
            return plain_gradients(_plain_grouped_linear, inputs, gradient, needed)
        rows, weights = inputs
        return (
            torch.bmm(gradient, weights) if needed[0] else None,
            torch.bmm(gradient.transpose(1, 2), rows) if needed[1] else None,
        )
