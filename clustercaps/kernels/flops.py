"""Floating-point operations of the fused operators, for `torch.utils.flop_counter`.

They count as the convolution that casts the votes, and its gradients, by the counter's own rules:
the same number as for the reference, whose other operators count nothing. What the kernel does not
multiply because of padding and what it computes a second time in the backward pass is not counted.
"""

from typing import Any

from torch.utils.flop_counter import conv_backward_flop, conv_flop_count

from clustercaps.kernels.checks import Shape, out_shape


def forward(
    x: Shape,
    weight: Shape,
    bias: Shape | None,
    stride: int,
    padding: int,
    clusters: int,
    votes: int,
    out_channels: int,
    *_: Any,
    **__: Any,
) -> Any:
    """Of `fused_capsules` and `inferred_capsules`, from the shapes of their tensors."""
    capsules = out_shape(x, weight, stride, padding, clusters, votes, out_channels)
    rows: list[Any] = list(weight)
    return conv_flop_count(_maps(x), rows, _votes(capsules, weight))


def backward(gradient: Shape, x: Shape, weight: Shape, *rest: Any, **__: Any) -> Any:
    """Of `fused_capsules_grad`, likewise."""
    stride, padding, needed = rest[6], rest[7], rest[14]
    maps = _maps(x)
    convolution = (stride, padding, 1, False, 0, x[1])
    shapes = (_votes(gradient, weight), maps, list(weight), None)
    # Its decorator adds `out_val`, and turns tensors into shapes.
    count: Any = conv_backward_flop
    return count(*shapes, *convolution, needed[:3], out_val=[maps, list(weight)])


def _maps(x: Shape) -> list[Any]:
    """Child capsules [B, C, D, H, W] as the feature maps [B, C*D, H, W] of the convolution."""
    batch, channels, dim, *sides = x
    return [batch, channels * dim, *sides]


def _votes(capsules: Shape, weight: Shape) -> list[Any]:
    """The shape of the votes for capsules of this shape."""
    return [capsules[0], weight[0], *capsules[3:]]
