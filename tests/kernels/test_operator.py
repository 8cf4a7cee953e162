"""The kernel as an operator of PyTorch: checks, compile, export, autocast, borders."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.layer_case import Case, gradients
from torch import nn

import clustercaps as cc
from clustercaps.kernels import checks, cluster_cpu, inference
from clustercaps.kernels.library import load
from clustercaps.testing import assert_close

HERE = Path(__file__).parent


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(bias: bool, dtype: torch.dtype) -> None:
    case = Case(bias=bias)
    tensors = [t.requires_grad_() for t in case.tensors(dtype)]
    x, weight, bias_tensor = (*tensors, None)[:3]
    sizes = (1, 1, case.clusters, case.votes)
    arguments = (x, weight, bias_tensor, *sizes, case.out_channels, False, 1e-3)
    torch.library.opcheck(cluster_cpu.fused_capsules, (*arguments, False, None, None, 0.0))

    shape = (case.out_dim, case.height, case.width)
    scaled = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(2)]
    with_norm = (*arguments, True, *scaled, 1e-5)
    torch.library.opcheck(cluster_cpu.fused_capsules, with_norm)
    without_graph = [t.detach() if isinstance(t, torch.Tensor) else t for t in with_norm]
    torch.library.opcheck(inference.inferred_capsules, without_graph)

    _, capsules, scale, moments = cluster_cpu.fused_capsules(*with_norm)
    plain = [t if t is None else t.detach() for t in (capsules, x, weight, bias_tensor, *scaled)]
    kept = (plain[0], scale.detach(), moments.detach())
    settings = (*sizes, case.out_channels, False, 1e-3, 1e-5, [True, True, bias, True, True])
    torch.library.opcheck(cluster_cpu.fused_capsules_grad, (*plain, *kept, *settings))


def test_compile_and_export() -> None:
    # In a process of its own: the run-time checks of shapes in annotations stop torch.compile.
    done = subprocess.run(
        [sys.executable, HERE / "check_compile.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_is_kept_has_no_gradient() -> None:
    case = Case()
    leaves = [t.requires_grad_() for t in case.tensors(torch.float64)]
    sizes = (1, 1, case.clusters, case.votes, case.out_channels)
    capsules, *kept = cluster_cpu.fused_capsules(
        *leaves, *sizes, False, 1e-3, True, None, None, 1e-5
    )
    assert capsules.requires_grad
    assert not any(tensor.requires_grad for tensor in kept)


def layers(**settings: object) -> tuple[nn.Module, nn.Module]:
    """The same layer through the kernel and through the reference."""
    fused = cc.ClusterCapsules2d(2, 3, 2, 4, votes=5, in_size=9, backend="cpu", **settings)
    reference = cc.ClusterCapsules2d(
        2, 3, 2, 4, votes=5, in_size=9, backend="reference", **settings
    )
    reference.load_state_dict(fused.state_dict())
    return fused, reference


@pytest.mark.parametrize("routing", ["cluster", "uniform"])
@pytest.mark.parametrize("clusters", [1, 3])
def test_layer(routing: str, clusters: int) -> None:
    fused, reference = layers(routing=routing, clusters=clusters, stride=2)
    x = torch.randn(3, 2, 3, 9, 9)
    torch.testing.assert_close(fused(x), reference(x))
    fused(x).square().sum().backward()
    reference(x).square().sum().backward()
    for mine, theirs in zip(fused.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4)


def test_autocast_takes_the_dtypes_of_the_convolution() -> None:
    fused, reference = layers(norm=False)
    x = torch.randn(3, 2, 3, 9, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mine, theirs = fused(x), reference(x)
    assert mine.dtype == theirs.dtype == torch.bfloat16
    mine.float().square().sum().backward()
    assert fused.vote.weight.grad.dtype == torch.float32
    # The reference rounds every vote to bfloat16, the kernel only inputs and result.
    rounded = [t.bfloat16().double() for t in (x, fused.vote.weight, fused.vote.bias)]
    exact = Case(height=9, width=9, votes=5, out_dim=4, eps=fused.eps).reference(*rounded)
    assert_close("autocast", mine, exact, 3e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    case = Case(votes=5)
    layer = cc.ClusterCapsules2d(2, 3, 2, 3, votes=5, norm=False, eps=1e-3, backend="cpu")
    x, weight, bias = case.tensors(dtype)
    layer.vote.weight.data, layer.vote.bias.data = weight, bias
    out = layer(x)
    assert out.dtype == dtype
    assert_close("half", out, case.reference(x.double(), weight.double(), bias.double()), 5e-3)
    out.sum().backward()
    assert layer.vote.weight.grad.dtype == dtype


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (17, 7), (13, 33)])
@pytest.mark.parametrize("votes", [1, 5, 8, 9])
def test_nothing_is_written_outside(size: tuple[int, int], votes: int) -> None:
    case = Case(batch=3, height=size[0], width=size[1], votes=votes, stride=2)
    x, weight, bias = case.tensors(torch.float32)
    capsules = case.fused(x, weight, bias)
    sizes = (2, 1, case.clusters, votes, case.out_channels, False)
    prepared = checks.prepare(x.shape, weight.shape, bias.shape, None, None, *sizes)
    assert isinstance(prepared, checks.Prepared)
    poison, border = 12345.0, 64

    def fenced(like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        buffer = torch.full((like.numel() + 2 * border,), poison)
        return buffer, buffer[border:-border]

    scaled, moments = torch.ones(2, *capsules.shape[2:]), torch.empty(3, 2, 2)
    shapes = (capsules, capsules, capsules, moments, x, weight, bias, *scaled)
    buffers, outs = zip(*(fenced(t) for t in shapes), strict=True)
    run = load()
    run("forward", prepared.layer, case.eps, 1e-5, x, weight, bias, *scaled, *outs[:4])
    before, _, scale, moments = outs[:4]
    kept = (before, scale, moments, torch.ones_like(capsules))
    run("backward", prepared.layer, case.eps, 1e-5, x, weight, bias, *scaled, *kept, *outs[4:])
    for buffer, inside in zip(buffers, outs, strict=True):
        assert (buffer[:border] == poison).all()
        assert (buffer[-border:] == poison).all()
        assert not (inside == poison).any()
    assert torch.equal(before.view_as(capsules), capsules)


def test_wrong_dtype_is_refused_as_by_the_reference() -> None:
    fused, reference = layers()
    x = torch.randn(3, 2, 3, 9, 9, dtype=torch.float64)
    for layer in (fused, reference):
        with pytest.raises(RuntimeError, match="same"):
            layer(x)


def test_gradients_of_a_network() -> None:
    torch.manual_seed(0)
    model = cc.create_model("m1", in_chans=1, img_size=12, dim=3).double()
    images = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    names = [name for name, _ in model.named_parameters()]

    def run(backend: str) -> list[torch.Tensor]:
        for module in model.modules():
            if isinstance(module, cc.ClusterCapsules2d):
                module.backend = backend
        return torch.autograd.grad(model(images).square().sum(), list(model.parameters()))

    for name, mine, theirs in zip(names, run("cpu"), run("reference"), strict=True):
        assert_close(name, mine, theirs, 1e-9)


def test_uses_the_threads_it_is_given() -> None:
    case = Case(batch=4, height=16, width=16)
    results = []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        results.append(gradients(case.fused, case.tensors(torch.float64)))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b)


def test_without_gradients_the_result_is_the_same() -> None:
    fused, _ = layers()
    x = torch.randn(3, 2, 3, 9, 9)
    with torch.no_grad():
        assert torch.equal(fused(x), fused(x.clone().requires_grad_()))
    assert torch.equal(fused(x).detach(), torch.func.functional_call(fused, {}, (x,)).detach())


def test_function_transforms_take_the_reference() -> None:
    fused, reference = layers()
    x = torch.randn(2, 2, 3, 9, 9)

    def loss(layer: nn.Module):
        parameters = {name: p.detach() for name, p in layer.named_parameters()}
        return torch.func.grad(lambda p: torch.func.functional_call(layer, p, (x,)).square().sum())(
            parameters
        )

    mine, theirs = loss(fused), loss(reference)
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_norm_inside_the_kernel(learned: bool, threads: int) -> None:
    torch.set_num_threads(threads)
    size = {"in_size": (9, 11)} if learned else {}
    made = [
        cc.ClusterCapsules2d(2, 3, 3, 4, votes=5, stride=2, backend=backend, **size).double()
        for backend in ("cpu", "reference")
    ]
    for parameter in made[0].parameters():
        parameter.data.normal_()
    made[1].load_state_dict(made[0].state_dict())
    found = []
    for layer in made:
        x = torch.randn(5, 2, 3, 9, 11, generator=torch.Generator().manual_seed(1)).double()
        x.requires_grad_()
        capsules = layer(x)
        pull = torch.randn(capsules.shape, generator=torch.Generator().manual_seed(2)).double()
        grads = torch.autograd.grad(capsules, [x, *layer.parameters()], pull)
        with torch.no_grad():
            found.append([capsules, layer(x[:1]), *grads])
    for actual, expected in zip(*found, strict=True):
        assert_close("with norm", actual, expected, 1e-11)


def test_a_norm_that_somebody_listens_to_is_called() -> None:
    fused, _ = layers()
    heard = []
    x = torch.randn(1, 2, 3, 9, 9)
    expected = fused(x)
    fused.norm.register_forward_hook(lambda *_: heard.append(True))
    torch.testing.assert_close(fused(x), expected)
    assert heard == [True]


def test_a_norm_for_other_maps_is_refused() -> None:
    case = Case()
    x, weight, bias = case.tensors(torch.float32)
    wrong = torch.ones(case.out_dim, case.height, case.width + 1)
    sizes = (1, 1, case.clusters, case.votes, case.out_channels, False, 1e-3)
    with pytest.raises(RuntimeError, match="but the feature maps have shape"):
        cluster_cpu.fused_capsules(x, weight, bias, *sizes, True, wrong, wrong, 1e-5)
