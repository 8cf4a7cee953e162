"""Layers of every backend, and the operators below them, differentiated in every form."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from helpers.derivatives import FORMS
from helpers.layer_case import Case
from torch import Tensor
from torch.nn.functional import layer_norm

import clustercaps as cc
from clustercaps.kernels import cluster_cpu
from clustercaps.kernels.chunked import ChunkedCapsules
from clustercaps.kernels.plain import Shape

# Few numbers: a Hessian has their square.
SMALL = Case(
    batch=1,
    in_dim=1,
    height=3,
    width=2,
    votes=2,
    out_channels=1,
    out_dim=2,
    kernel=2,
)
# Where the operator itself cannot follow, and a layer takes plain PyTorch instead.
REFUSED = (
    "functional.jacobian, forward mode",
    "func.hessian",
    "func.jacrev",
    "func.jacfwd",
    "func.jvp",
    "func.vmap",
    "forward mode",
    "forward over reverse",
)


def fused_with_norm(x: Tensor, weight: Tensor, bias: Tensor, *scaled: Tensor) -> Tensor:
    sizes = (1, 1, SMALL.clusters, SMALL.votes, SMALL.out_channels, False, SMALL.eps)
    return cluster_cpu.fused_capsules(x, weight, bias, *sizes, True, *scaled, 1e-5)[0]


def reference_with_norm(
    x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor
) -> Tensor:
    capsules = SMALL.reference(x, weight, bias)
    return layer_norm(capsules, capsules.shape[2:], scale, shift, 1e-5)


def chunked(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    shape = Shape(1, 1, SMALL.in_channels, SMALL.in_channels, SMALL.votes, False, SMALL.eps)
    flat = ChunkedCapsules.apply(x.flatten(1, 2), weight, bias, shape)
    return flat.unflatten(1, (SMALL.out_channels, SMALL.out_dim))


OPERATORS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "fused": (SMALL.fused, SMALL.reference),
    "fused with norm": (fused_with_norm, reference_with_norm),
    "chunked": (chunked, SMALL.reference),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_right_or_refuses(name: str, form: str) -> None:
    operator, reference = OPERATORS[name]
    inputs = SMALL.tensors(torch.float64)
    if name == "fused with norm":
        inputs += [torch.randn(2, 4, 3, dtype=torch.float64) for _ in range(2)]
    if form in REFUSED:
        with pytest.raises((RuntimeError, NotImplementedError), match=r"forward|functorch"):
            FORMS[form](operator, inputs)
        return
    actual, expected = FORMS[form](operator, inputs), FORMS[form](reference, inputs)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def layer_and_inputs(backend: str, routing: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    layer = cc.ClusterCapsules2d(
        2, 1, 1, 2, votes=2, in_size=3, stride=2, kernel_size=2, routing=routing, backend=backend
    ).double()
    names = [name for name, _ in layer.named_parameters()]
    draw = torch.Generator().manual_seed(1)
    shapes = [(1, 2, 1, 3, 3), *(p.shape for p in layer.parameters())]
    inputs = [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    return run, inputs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("routing", ["cluster", "uniform"])
@pytest.mark.parametrize("backend", ["cpu", "chunked"])
def test_a_layer_is_right(backend: str, routing: str, form: str) -> None:
    layer, inputs = layer_and_inputs(backend, routing)
    reference, _ = layer_and_inputs("reference", routing)
    actual, expected = FORMS[form](layer, inputs), FORMS[form](reference, inputs)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["cpu", "chunked"])
def test_second_gradients_keep_the_dtype(backend: str, dtype: torch.dtype) -> None:
    layer = cc.ClusterCapsules2d(2, 3, 2, 4, votes=5, in_size=5, backend=backend, dtype=dtype)
    x = torch.randn(2, 2, 3, 5, 5, dtype=dtype, requires_grad=True)
    leaves = [x, *layer.parameters()]
    first = torch.autograd.grad(layer(x).float().square().mean(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(g.float().square().sum() for g in first), leaves)
    assert {g.dtype for g in (*first, *second)} == {dtype}
    assert all(g.isfinite().all() for g in second)


@pytest.mark.parametrize("backend", ["cpu", "chunked"])
def test_second_gradients_of_a_network(backend: str) -> None:
    found = []
    for chosen in (backend, "reference"):
        torch.manual_seed(0)
        model = cc.create_model("m1", in_chans=1, img_size=8, dim=2).double()
        for module in model.modules():
            if isinstance(module, cc.ClusterCapsules2d):
                module.backend = chosen
        leaves = list(model.parameters())
        images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
        loss = torch.nn.functional.cross_entropy(model(images), torch.tensor([0, 1]))
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_the_gradient_of_the_kernel_is_refused_a_second_time() -> None:
    sizes = (1, 1, SMALL.clusters, SMALL.votes, SMALL.out_channels, False, SMALL.eps)
    x, weight, bias = (t.requires_grad_() for t in SMALL.tensors(torch.float64))
    forward = partial(cluster_cpu.fused_capsules, x, weight, bias, *sizes)
    out, _, scale, moments = forward(False, None, None, 0.0)
    kept = (x, weight, bias, None, None, out, scale, moments)
    pull = torch.ones_like(out)
    first = cluster_cpu.fused_capsules_grad(pull, *kept, *sizes, 0.0, [True] * 5)[0]
    for differentiate in (
        lambda: first.sum().backward(),
        lambda: torch.autograd.grad(first.sum(), x),
    ):
        with pytest.raises(RuntimeError, match="differentiate fused_capsules twice"):
            differentiate()
