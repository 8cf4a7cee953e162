"""Gradients that can be differentiated again, for operators whose own backward pass cannot.

A backward pass that works in shared memory or in a kernel gives numbers without a graph. Where a
graph is wanted (`create_graph=True`, a Hessian, the double-backward form of a Jacobian-vector
product) the gradient is computed by autograd from the plain formula instead.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from clustercaps.utils.precision import without_autocast
from clustercaps.utils.tracing import plain_only


def wants_graph(gradient: Tensor) -> bool:
    """Asked in a backward pass: whether it must be made of operators that PyTorch differentiates.

    Autograd switches gradients on in a backward pass exactly if `create_graph` is set. Batched
    gradients (`is_grads_batched`, `vectorize=True`) and forward mode need plain operators too.
    """
    batched: bool = torch._C._functorch.is_legacy_batchedtensor(gradient)
    return torch.is_grad_enabled() or batched or plain_only()


def plain_gradients(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor | None],
    gradient: Tensor,
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of `function(*inputs)` for the inputs that need one, with a graph if it is wanted.

    Args:
        function: The plain formula.
        inputs: What the operator kept of its inputs, still part of their graph.
        gradient: Of the result.
        needed: Which inputs need a gradient.
    """
    create_graph = torch.is_grad_enabled()
    # The inputs have the dtypes that the operator computed in.
    with torch.enable_grad(), without_autocast(gradient):
        # Aliases: if one input was computed from another, that way must not count twice.
        apart = [None if tensor is None else tensor.view_as(tensor) for tensor in inputs]
        result = function(*apart)
        asked = [t for t, need in zip(apart, needed, strict=True) if need and t is not None]
        found = iter(torch.autograd.grad(result, asked, gradient, create_graph=create_graph))
    return tuple(
        next(found) if need and tensor is not None else None
        for tensor, need in zip(apart, needed, strict=True)
    )


def refuse_forward_mode(what: str) -> None:
    """For operators of `torch.library`, whose dispatcher drops tangents without a word."""
    if forward_ad._current_level >= 0:
        raise RuntimeError(
            f"{what} has no forward-mode derivative; call the layer, which takes plain PyTorch "
            'inside a dual level, or build it with backend="reference"'
        )
