"""torch.compile(fullgraph=True) through the kernel, export without it; run by test_operator."""

from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

import clustercaps as cc
from clustercaps.kernels.compiled import compiled_route

torch.manual_seed(0)
layer = cc.ClusterCapsules2d(2, 3, 2, 4, votes=3, stride=2, in_size=7, backend="cpu")
x = torch.randn(2, 2, 3, 7, 7)

# aot_eager traces forward and backward whole, without waiting for a C++ compiler.
compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
torch.testing.assert_close(compiled(x), layer(x))
expected = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
actual = torch.autograd.grad(compiled(x).square().sum(), list(layer.parameters()))
torch.testing.assert_close(actual, expected)

graphs: list[Any] = []


def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
    graphs.append(graph)
    return graph


torch.compile(layer, fullgraph=True, backend=keep)(x)
assert "fused_capsules" in graphs[0].code, graphs[0].code

# The backward pass as well: no plain formula where nobody differentiates it again.
graphs.clear()
both = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(keep(graph, _).forward))
torch.compile(layer, fullgraph=True, backend=both)(x).square().sum().backward()
assert "fused_capsules_grad" in graphs[1].code, graphs[1].code

# A compiled layer refuses to be differentiated twice, which is PyTorch's own limit.


def differentiate_twice() -> None:
    weight = layer.vote.weight
    (first,) = torch.autograd.grad(compiled(x).square().sum(), weight, create_graph=True)
    torch.autograd.grad(first.sum(), weight)


with pytest.raises(RuntimeError, match=r"create_graph|double backward"):
    differentiate_twice()

# Strict export keeps the operator in torch 2.7 and fails in 2.8; it was tried again in 2.13.
recent = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
for strict in (False, True) if recent else (False,):
    exported = torch.export.export(layer, (x,), strict=strict)
    assert "fused_capsules" not in str(exported.graph)
    torch.testing.assert_close(exported.module()(x), layer(x))

traced = torch.jit.trace(layer, x)
assert "fused_capsules" not in str(traced.graph)

# The compiled backend, with a compiler that is quick to start.
compiled_route.cache_clear()
whole = torch.compile
torch.compile = lambda f: whole(f, backend="aot_eager")  # type: ignore[assignment]
layer.backend = "compiled"
routed = layer(x)
layer.backend = "reference"
torch.testing.assert_close(routed, layer(x))
