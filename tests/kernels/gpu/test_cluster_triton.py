"""The Triton routing against the float64 reference, on a GPU or under TRITON_INTERPRET=1."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from helpers.derivatives import FORMS
from torch import Tensor

import clustercaps as cc
from clustercaps import kernels
from clustercaps.routing import cluster_route
from clustercaps.testing import EXTREMES, assert_close, assert_finite

pytestmark = pytest.mark.triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPS = 1e-3
# Relative errors of the result and of the gradient. Half precision is rounded once, at the end.
ALLOWED = {
    torch.float64: 1e-13,
    torch.float32: 1e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 5e-3,
}
# Batch, clusters, votes and parent axes; a program takes 256 positions.
SHAPES = [
    (2, 3, 1, 5),
    (1, 1, 2, 7, 3),
    (3, 2, 3, 1),
    (1, 5, 4, 2, 3, 5, 11),
    (2, 4, 5, 257),
    (1, 1, 6, 256),
    (1, 2, 7, 600),
    (2, 3, 8, 13),
    (1, 2, 32, 3),
    (2, 1, 1),
]


# Not imported above: the default run collects this file where triton is missing.
@pytest.fixture(scope="module")
def op() -> ModuleType:
    from clustercaps.kernels import cluster_triton

    return cluster_triton


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).to(DEVICE, dtype)


def with_gradient(function, votes: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
    leaf = votes.detach().requires_grad_()
    capsules = function(leaf)
    return capsules.detach(), torch.autograd.grad(capsules, leaf, pull.to(capsules.dtype))[0]


def assert_like_reference(
    op: ModuleType, votes: Tensor, routing: str, eps: float = EPS, allowed: float | None = None
) -> None:
    pull = draw(votes.shape[0], *votes.shape[3:], dtype=votes.dtype)
    uniform = routing == "uniform"
    got = with_gradient(lambda v: op.route(v, uniform=uniform, eps=eps), votes, pull)
    reference = partial(cluster_route, routing=routing)
    expected = with_gradient(lambda v: reference(v, eps=eps)[0], votes.double(), pull.double())
    for name, mine, right in zip(("capsules", "gradient"), got, expected, strict=True):
        assert mine.dtype == votes.dtype
        assert_finite(name, mine)
        assert_close(name, mine, right, allowed or ALLOWED[votes.dtype])


@pytest.mark.parametrize("routing", ["cluster", "uniform"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(op: ModuleType, shape: tuple[int, ...], routing: str) -> None:
    for dtype in (torch.float64, torch.float32):
        assert_like_reference(op, draw(*shape, dtype=dtype), routing)


@pytest.mark.parametrize("routing", ["cluster", "uniform"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(op: ModuleType, dtype: torch.dtype, routing: str) -> None:
    assert_like_reference(op, draw(2, 4, 5, 3, 100, dtype=dtype), routing)


@pytest.mark.parametrize("extreme", EXTREMES)
def test_awkward_votes(op: ModuleType, extreme: str) -> None:
    votes = EXTREMES[extreme](draw(2, 3, 5, 9))
    # Where votes agree, the rounding of their mean is multiplied by up to 1 / eps, here and there.
    assert_like_reference(op, votes, "cluster", 1e-6, allowed=1e-9)


@pytest.mark.parametrize("routing", ["cluster", "uniform"])
@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 3, 4, 0), (0, 1, 1)], ids=str)
def test_nothing_to_route(op: ModuleType, shape: tuple[int, ...], routing: str) -> None:
    assert_like_reference(op, draw(*shape), routing)


def test_layouts(op: ModuleType) -> None:
    votes = draw(3, 7, 5, 4, 2).permute(0, 3, 2, 1, 4)
    assert_like_reference(op, votes, "cluster")
    # A gradient that autograd expands from one number has strides of zero.
    votes = votes.detach().requires_grad_()
    (mine,) = torch.autograd.grad(op.route(votes, uniform=False, eps=EPS).sum(), votes)
    (right,) = torch.autograd.grad(cluster_route(votes, eps=EPS)[0].sum(), votes)
    assert_close("gradient", mine, right, 1e-13)


def test_small_spread_around_large_centroids(op: ModuleType) -> None:
    # A variance of squares minus square of the mean would lose every digit.
    votes = (1000 + 0.1 * draw(2, 3, 5, 9)).float()
    capsules = op.route(votes, uniform=False, eps=1e-8)
    right = cluster_route(votes.double(), eps=1e-8)[0]
    assert_close("capsules", capsules - 1000, right - 1000, 1e-2)


def test_writes_only_its_outputs(op: ModuleType) -> None:
    votes = draw(2, 3, 4, 261)
    grid, sizes = op._launch(votes)
    border = 512

    def bordered(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        whole = votes.new_full((torch.Size(shape).numel() + 2 * border,), -7.0)
        return whole, whole[border:-border].view(shape)

    (c_whole, capsules), (s_whole, scale) = bordered((2, 261)), bordered((2, 261))
    op._route[grid](votes, capsules, scale, eps=EPS, **sizes)
    g_whole, votes_grad = bordered(votes.shape)
    pull = torch.ones_like(capsules)
    op._route_grad[grid](pull, votes, capsules, scale, votes_grad, eps=EPS, **sizes)
    for whole in (c_whole, s_whole, g_whole):
        assert (whole[:border] == -7).all()
        assert (whole[-border:] == -7).all()
        assert not (whole[border:-border] == -7).any()


def test_opcheck(op: ModuleType) -> None:
    # The last check of opcheck traces the kernel, which the interpreter cannot.
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    checks += [] if interpreted else ["test_aot_dispatch_dynamic"]
    votes = draw(2, 3, 4, 5, 3).requires_grad_()
    torch.library.opcheck(op.routed_capsules, (votes, EPS), test_utils=checks)
    capsules, scale = (t.detach() for t in op.routed_capsules(votes, EPS))
    assert not op.routed_capsules(votes, EPS)[1].requires_grad
    arguments = (torch.ones_like(capsules), votes.detach(), capsules, scale, EPS)
    torch.library.opcheck(op.routed_capsules_grad, arguments, test_utils=checks)


def test_compiles_for_gpus(tmp_path: Path) -> None:
    # In a process of its own: the kernels are either interpreted or compiled, from import on.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    script = Path(__file__).parent / "check_compile.py"
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr


# As for the kernel on CPU: within torch.func and forward mode the operator refuses, and the layer
# takes plain PyTorch.
REFUSED = ("forward mode", "forward over reverse", "functional.jacobian, forward mode")


@pytest.mark.skipif(DEVICE != "cpu", reason="the forms draw their directions on CPU")
@pytest.mark.parametrize("form", FORMS)
def test_derivatives_in_every_form(op: ModuleType, form: str) -> None:
    votes = [draw(1, 2, 2, 3)]
    route = partial(op.route, uniform=False, eps=EPS)
    if form in REFUSED or form.startswith("func."):
        with pytest.raises((RuntimeError, NotImplementedError), match=r"forward|functorch"):
            FORMS[form](route, votes)
        return
    expected = FORMS[form](lambda v: cluster_route(v, eps=EPS)[0], votes)
    torch.testing.assert_close(FORMS[form](route, votes), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(DEVICE != "cpu", reason="the forms draw their directions on CPU")
@pytest.mark.parametrize("form", FORMS)
def test_derivatives_of_a_layer(form: str) -> None:
    layer = cc.ClusterCapsules2d(2, 1, 1, 2, votes=2, in_size=2, kernel_size=2).double()
    found = []
    for layer.backend in ("triton", "reference"):
        draw_again = torch.Generator().manual_seed(0)
        x = torch.randn(1, 2, 1, 2, 2, generator=draw_again, dtype=torch.float64)
        found.append(FORMS[form](layer, [x]))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("routing", ["cluster", "uniform"])
def test_layer(routing: str, batch: int) -> None:
    def layer(backend: str) -> torch.nn.Module:
        sizes = {"votes": 5, "clusters": 2, "stride": 2, "in_size": 5}
        made = cc.ClusterCapsules2d(2, 3, 2, 4, **sizes, routing=routing, backend=backend)
        return made.double().to(DEVICE)

    triton, reference = layer("triton"), layer("reference")
    reference.load_state_dict(triton.state_dict())
    x = draw(batch, 2, 3, 5, 5)
    assert_close("capsules", triton(x), reference(x), 1e-12)
    triton(x).square().sum().backward()
    reference(x).square().sum().backward()
    for mine, right in zip(triton.parameters(), reference.parameters(), strict=True):
        assert_close("gradient", mine.grad, right.grad, 1e-10)


def test_autocast() -> None:
    layer = cc.ClusterCapsules2d(2, 3, 2, 4, votes=5, norm=False, backend="triton").to(DEVICE)
    x = draw(2, 2, 3, 5, 5, dtype=torch.float32)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        capsules = layer(x)
    assert capsules.dtype == torch.bfloat16
    capsules.float().square().sum().backward()
    assert layer.vote.weight.grad.dtype == torch.float32


def test_too_many_votes_are_refused(op: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="up to 32 votes per cluster, got 33"):
        op.route(draw(1, 2, 33, 3), uniform=False, eps=EPS)


def test_is_available_and_never_chosen_for_cpu_unasked() -> None:
    assert kernels.available()["triton"].usable
    assert kernels.choose("triton", DEVICE) == "triton"
    assert kernels.choose("auto", "cuda") == "reference"
    assert kernels.choose("auto", "cpu") != "triton"
