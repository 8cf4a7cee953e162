"""Every way in which PyTorch differentiates a function, once or twice, in either direction."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad, functional

Function = Callable[..., Tensor]


def directions(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(7)
    return tuple(torch.randn(t.shape, generator=draw, dtype=t.dtype) for t in tensors)


def leaves(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [t.detach().clone().requires_grad_() for t in inputs]


def cubic(function: Function) -> Function:
    """A number whose second derivatives also see those of the last operator."""
    return lambda *inputs: function(*inputs).pow(3).sum()


def backward_twice(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    found = leaves(inputs)
    with warnings.catch_warnings():
        # Gradients that keep their graph are a cycle of references; this one is short-lived.
        warnings.simplefilter("ignore")
        cubic(function)(*found).backward(create_graph=True)
    first = grads_of(found)
    for leaf in found:
        leaf.grad = None
    torch.stack([g.square().sum() for g in first]).sum().backward()
    return grads_of(found)


def grads_of(leaves: Sequence[Tensor]) -> list[Tensor]:
    grads = [leaf.grad for leaf in leaves]
    assert all(grad is not None for grad in grads)
    return grads


def grad_twice(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    found = leaves(inputs)
    first = torch.autograd.grad(cubic(function)(*found), found, create_graph=True)
    return list(torch.autograd.grad(sum(g.square().sum() for g in first), found))


def grad_thrice(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    found = leaves(inputs)
    grads: Any = (cubic(function)(*found),)
    for _ in range(3):
        total = sum(g.square().sum() for g in grads)
        grads = torch.autograd.grad(total, found, create_graph=True)
    return list(grads)


def dependent_inputs(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Inputs that were computed from each other, as the means of votes are."""
    found = leaves(inputs)
    mixed = [found[0], *(t * (1 + found[0].mean()) for t in found[1:])]
    first = torch.autograd.grad(cubic(function)(*mixed), found, create_graph=True)
    return list(torch.autograd.grad(sum(g.square().sum() for g in first), found))


def one_hot_twice(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Second derivatives when one input alone is differentiated, each in its turn."""
    found: list[Tensor] = []
    for number, chosen in enumerate(inputs):
        (leaf,) = leaves([chosen])
        rest = [*inputs[:number], leaf, *inputs[number + 1 :]]
        (first,) = torch.autograd.grad(cubic(function)(*rest), leaf, create_graph=True)
        found += torch.autograd.grad(first.square().sum(), leaf)
    return found


def flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [t for part in result for t in flat(part)]


def of_functional(name: str, scalar: bool, **options: Any) -> Callable[..., list[Tensor]]:
    def run(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
        wanted = cubic(function) if scalar else function
        if name in ("hessian", "jacobian"):
            return flat(getattr(functional, name)(wanted, tuple(inputs), **options))
        return flat(getattr(functional, name)(wanted, tuple(inputs), directions(inputs)))

    return run


def of_func(transform: Callable[..., Any], scalar: bool) -> Callable[..., list[Tensor]]:
    def run(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
        every = tuple(range(len(inputs)))
        return flat(transform(cubic(function) if scalar else function, argnums=every)(*inputs))

    return run


def func_jvp(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    return flat(torch.func.jvp(function, tuple(inputs), directions(inputs)))


def func_vmap(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Several sets of inputs, their gradients too."""
    stacked = [torch.stack([t, t + d]) for t, d in zip(inputs, directions(inputs), strict=True)]
    every = tuple(range(len(inputs)))
    gradients = torch.func.grad(cubic(function), argnums=every)
    return [torch.vmap(function)(*stacked), *torch.vmap(gradients)(*stacked)]


def forward_mode(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    with forward_ad.dual_level():
        pairs = zip(inputs, directions(inputs), strict=True)
        found = forward_ad.unpack_dual(function(*(forward_ad.make_dual(*pair) for pair in pairs)))
        assert found.tangent is not None, "the tangent was lost"
        return [found.primal, found.tangent]


def forward_over_reverse(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    with forward_ad.dual_level():
        pairs = zip(leaves(inputs), directions(inputs), strict=True)
        duals = [forward_ad.make_dual(*pair) for pair in pairs]
        first = torch.autograd.grad(cubic(function)(*duals), duals)
        return [forward_ad.unpack_dual(g).tangent for g in first]


def dual_gradient(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    """A forward pass as usual, and a dual number as the gradient of its result."""
    found = leaves(inputs)
    result = function(*found)
    with forward_ad.dual_level():
        pull = forward_ad.make_dual(torch.ones_like(result), *directions([result]))
        first = torch.autograd.grad(result, found, pull)
        return [forward_ad.unpack_dual(g).tangent for g in first]


FORMS: dict[str, Callable[[Function, Sequence[Tensor]], list[Tensor]]] = {
    "backward twice": backward_twice,
    "grad twice": grad_twice,
    "grad thrice": grad_thrice,
    "inputs that depend on each other": dependent_inputs,
    "one input at a time": one_hot_twice,
    "functional.hessian": of_functional("hessian", True),
    "functional.hessian, vectorised": of_functional("hessian", True, vectorize=True),
    "functional.jacobian, vectorised": of_functional("jacobian", False, vectorize=True),
    "functional.jacobian, forward mode": of_functional(
        "jacobian", False, vectorize=True, strategy="forward-mode"
    ),
    "functional.jvp": of_functional("jvp", False),
    "functional.hvp": of_functional("hvp", True),
    "functional.vhp": of_functional("vhp", True),
    "func.hessian": of_func(torch.func.hessian, True),
    "func.jacrev": of_func(torch.func.jacrev, False),
    "func.jacfwd": of_func(torch.func.jacfwd, False),
    "func.jvp": func_jvp,
    "func.vmap": func_vmap,
    "forward mode": forward_mode,
    "forward over reverse": forward_over_reverse,
    "dual gradient": dual_gradient,
}
