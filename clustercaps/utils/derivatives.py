"""Differentiable gradients for operators whose own backward pass is not differentiable.

A backward pass that works in place or in a kernel returns values without a graph. If a graph is
needed (`create_graph=True`, a Hessian, the double-backward form of a Jacobian-vector product),
autograd computes the gradient from the plain formula instead.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from clustercaps.utils.precision import without_autocast
from clustercaps.utils.tracing import plain_only


def wants_graph(gradient: Tensor) -> bool:
    """Whether the current backward pass must consist of differentiable PyTorch operators.

    Autograd enables gradients in a backward pass exactly if `create_graph` is set. Batched
    gradients (`is_grads_batched`, `vectorize=True`) and forward mode need plain operators too.
    """
    batched: bool = torch._C._functorch.is_legacy_batchedtensor(gradient)
    return torch.is_grad_enabled() or batched or plain_only()


def plain_gradients(
    function: Callable[..., Tensor | tuple[Tensor, ...]],
    inputs: Sequence[Tensor | None],
    gradient: Tensor | Sequence[Tensor],
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of `function(*inputs)` for the inputs that need one, with a graph if needed.

    Args:
        function: The plain formula.
        inputs: The inputs saved by the operator, still part of their graph.
        gradient: Gradient of the result, or of each of several results.
        needed: Which inputs need a gradient.
    """
    create_graph = torch.is_grad_enabled()
    gradients = [gradient] if isinstance(gradient, Tensor) else gradient
    # The inputs already have the dtypes that the operator computes in.
    with torch.enable_grad(), without_autocast(gradients[0]):
        # Views: if one input was computed from another, that path must not be counted twice.
        apart = [None if tensor is None else tensor.view_as(tensor) for tensor in inputs]
        result = function(*apart)
        results = [result] if isinstance(result, Tensor) else result
        used = [n for n, each in enumerate(results) if each.requires_grad]
        asked = [t for t, need in zip(apart, needed, strict=True) if need and t is not None]
        found = iter(
            torch.autograd.grad(
                [results[n] for n in used],
                asked,
                [gradients[n] for n in used],
                create_graph=create_graph,
                allow_unused=True,
            )
        )
    return tuple(
        next(found) if need and tensor is not None else None
        for tensor, need in zip(apart, needed, strict=True)
    )


def refuse_forward_mode(what: str) -> None:
    """Raise an error in forward mode: `torch.library` operators would drop tangents silently."""
    if forward_ad._current_level >= 0:
        raise RuntimeError(
            f"{what} has no forward-mode derivative; call the layer, which uses plain PyTorch "
            'inside a dual level, or build it with backend="reference"'
        )
