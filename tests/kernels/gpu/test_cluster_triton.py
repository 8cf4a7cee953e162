"""The Triton layer against the float64 reference, on a GPU or under TRITON_INTERPRET=1."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from helpers.derivatives import FORMS
from torch import Tensor

from clustercaps.kernels.plain import Shape, plain_capsules
from clustercaps.testing import assert_close, assert_finite

pytestmark = pytest.mark.triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPS = 1e-3
# Relative errors of the result and of the gradients.
ALLOWED = {
    torch.float64: 1e-13,
    torch.float32: 1e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 1e-2,
}


class Case(NamedTuple):
    x: tuple[int, int, int, int, int]
    clusters: int
    votes: int
    # Channels and dimension.
    parents: tuple[int, int]
    # Side, stride and padding.
    window: tuple[int, int, int]
    uniform: bool = False
    biased: bool = True


# Odd sizes, batch 1, K = 1, several groups of votes, tiles of positions, parents and taps.
CASES = [
    Case((2, 2, 3, 7, 6), 1, 3, (2, 4), (3, 2, 1)),
    Case((1, 1, 1, 5, 5), 2, 1, (1, 1), (3, 1, 1)),
    Case((2, 2, 1, 4, 9), 2, 5, (3, 7), (5, 3, 2), biased=False),
    Case((1, 1, 9, 3, 3), 1, 8, (1, 5), (3, 1, 0)),
    Case((2, 1, 2, 9, 9), 1, 2, (2, 2), (2, 1, 1)),
    Case((1, 2, 1, 3, 3), 1, 17, (1, 2), (1, 1, 0)),
    Case((1, 1, 1, 2, 2), 1, 32, (1, 3), (2, 2, 1)),
    Case((2, 2, 3, 7, 6), 2, 4, (2, 4), (3, 2, 1), uniform=True),
    Case((3, 1, 2, 3, 3), 1, 1, (1, 2), (3, 2, 0), uniform=True, biased=False),
]


# Not imported above: the default run collects this file where triton is missing.
@pytest.fixture(scope="module")
def op() -> ModuleType:
    from clustercaps.kernels import cluster_triton

    return cluster_triton


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).to(DEVICE, dtype)


def inputs_of(case: Case, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    children, in_dim = case.x[1:3]
    rows = children * case.clusters * case.votes * case.parents[0] * case.parents[1]
    wide = torch.promote_types(dtype, torch.float32)
    found = [draw(*case.x, dtype=dtype), draw(rows, in_dim, *case.window[:1] * 2, dtype=wide)]
    found += [draw(rows, dtype=wide)] if case.biased else []
    return [each.requires_grad_() for each in found]


def triton(op: ModuleType, case: Case, *inputs: Tensor, eps: float = EPS) -> Tensor:
    given = (*inputs, None)[:3]
    sizes = (*case.window[1:], case.clusters, case.votes, case.parents[0])
    capsules: Tensor = op.triton_capsules(*given, *sizes, case.uniform, eps, "ieee")[0]
    return capsules


def reference(case: Case, *inputs: Tensor, eps: float = EPS) -> Tensor:
    x, weight, bias = (*inputs, None)[:3]
    children = x.shape[1]
    sizes = (*case.window[1:], children, children * case.clusters, case.votes, case.uniform, eps)
    return plain_capsules(x.flatten(1, 2), weight, bias, Shape(*sizes)).unflatten(1, case.parents)


def assert_like_reference(
    op: ModuleType,
    case: Case,
    inputs: list[Tensor],
    eps: float = EPS,
    allowed: float | None = None,
) -> None:
    exact = [each.detach().double().requires_grad_() for each in inputs]
    mine, right = triton(op, case, *inputs, eps=eps), reference(case, *exact, eps=eps)
    pull = torch.randn_like(right)
    grads = torch.autograd.grad(mine, inputs, pull.to(mine.dtype))
    expected = torch.autograd.grad(right, exact, pull)
    named = zip(("capsules", "x", "weight", "bias"), (mine, *grads), (right, *expected))  # noqa: B905
    for name, actual, wanted in named:
        assert_finite(name, actual)
        assert_close(name, actual, wanted, allowed or ALLOWED[inputs[0].dtype])
    assert [g.dtype for g in grads] == [i.dtype for i in inputs]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(op: ModuleType, case: Case) -> None:
    assert_like_reference(op, case, inputs_of(case))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_dtypes(op: ModuleType, dtype: torch.dtype) -> None:
    for case in (CASES[0], CASES[7]):
        assert_like_reference(op, case, inputs_of(case, dtype))


@pytest.mark.parametrize("scale", [0.0, 1e4, 1e-4])
def test_zeros_and_extreme_weights(op: ModuleType, scale: float) -> None:
    inputs = [(each * scale).detach().requires_grad_() for each in inputs_of(CASES[0])]
    assert_like_reference(op, CASES[0], inputs, 1e-6, allowed=1e-9)


def test_identical_votes(op: ModuleType) -> None:
    case = CASES[0]
    x, weight, bias = inputs_of(case)

    def same(each: Tensor) -> Tensor:
        votes = each.detach().unflatten(0, (2, case.votes, -1))
        return votes[:, :1].expand_as(votes).reshape(each.shape).clone().requires_grad_()

    assert_like_reference(op, case, [x, same(weight), same(bias)], 1e-6, allowed=1e-9)


def test_small_spread_around_large_centroids(op: ModuleType) -> None:
    # The difference of votes in float32 would lose most digits; contrasts lose none.
    case = Case((1, 1, 4, 3, 3), 2, 5, (1, 3), (1, 1, 0))
    x, weight, bias = inputs_of(case, torch.float32)
    bias = (1000 + 0.1 * bias.detach().unflatten(0, (2, 5, 3)).mean(1, keepdim=True)).expand(
        2, 5, 3
    )
    inputs = [x, (weight.detach() * 1e-2).requires_grad_(), bias.reshape(-1).clone()]
    right = reference(case, *(each.double() for each in inputs), eps=1e-8)
    assert_close("capsules", triton(op, case, *inputs, eps=1e-8) - 1000, right - 1000, 1e-2)


@pytest.mark.parametrize("case", [CASES[0], CASES[7]], ids=str)
def test_no_images(op: ModuleType, case: Case) -> None:
    empty = case._replace(x=(0, *case.x[1:]))
    inputs = inputs_of(empty)
    capsules = triton(op, empty, *inputs)
    assert capsules.shape == reference(empty, *inputs).shape
    for grad in torch.autograd.grad(capsules.sum(), inputs):
        assert not grad.any()


def test_layouts(op: ModuleType) -> None:
    case = CASES[0]
    x, *parameters = inputs_of(case)
    turned = x.detach().transpose(3, 4).contiguous().transpose(3, 4).requires_grad_()
    assert_like_reference(op, case, [turned, *parameters])
    # A gradient that autograd expands from one number has strides of zero.
    (mine,) = torch.autograd.grad(triton(op, case, x, *parameters).sum(), x)
    (right,) = torch.autograd.grad(reference(case, x, *parameters).sum(), x)
    assert_close("gradient", mine, right, 1e-13)


def test_images_at_a_time(op: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from clustercaps.kernels import triton_launch

    monkeypatch.setattr(triton_launch, "PATCHES", 1)
    assert_like_reference(op, CASES[0], inputs_of(CASES[0]))


def test_parts_of_the_positions(op: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from clustercaps.kernels import triton_launch

    # 162 positions in 1 part, and in as many as there are tiles.
    case = CASES[4]
    inputs = inputs_of(case)
    for programs in (1, 10_000):
        monkeypatch.setattr(triton_launch, "PROGRAMS", programs)
        assert_like_reference(op, case, inputs)


def test_writes_every_output(op: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is not written stays NaN.
    new_empty = Tensor.new_empty
    monkeypatch.setattr(
        Tensor, "new_empty", lambda self, *a, **k: new_empty(self, *a, **k).fill_(torch.nan)
    )
    for case in (CASES[2], CASES[5]):
        assert_like_reference(op, case, inputs_of(case))


def test_gradients_of_some_inputs(op: ModuleType) -> None:
    case = CASES[0]
    inputs = [each.detach() for each in inputs_of(case)]
    for wanted in range(3):
        inputs[wanted].requires_grad_()
        (mine,) = torch.autograd.grad(triton(op, case, *inputs).sum(), inputs[wanted])
        (right,) = torch.autograd.grad(reference(case, *inputs).sum(), inputs[wanted])
        assert_close("gradient", mine, right, 1e-12)
        inputs[wanted].requires_grad_(False)


def test_opcheck(op: ModuleType) -> None:
    # The last check of opcheck traces the kernel, which the interpreter cannot.
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    checks += [] if interpreted else ["test_aot_dispatch_dynamic"]
    case = CASES[0]
    inputs = inputs_of(case)
    options = (*case.window[1:], case.clusters, case.votes, case.parents[0], False, EPS, "ieee")
    torch.library.opcheck(op.triton_capsules, (*inputs, *options), test_utils=checks)
    capsules, scale = op.triton_capsules(*inputs, *options)
    assert not scale.requires_grad
    held = [each.detach() for each in (*inputs, capsules, scale)]
    arguments = (torch.ones_like(held[3]), *held, *options, True, True)
    torch.library.opcheck(op.triton_capsules_grad, arguments, test_utils=checks)


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
SMALL = Case((1, 1, 1, 2, 2), 1, 2, (1, 2), (2, 2, 0), biased=False)


@pytest.mark.skipif(DEVICE != "cpu", reason="the forms draw their directions on CPU")
@pytest.mark.parametrize("form", FORMS)
def test_derivatives_in_every_form(op: ModuleType, form: str) -> None:
    inputs = [each.detach() for each in inputs_of(SMALL)]
    if form in REFUSED or form.startswith("func."):
        with pytest.raises((RuntimeError, NotImplementedError), match=r"forward|functorch"):
            FORMS[form](partial(triton, op, SMALL), inputs)
        return
    expected = FORMS[form](partial(reference, SMALL), inputs)
    found = FORMS[form](partial(triton, op, SMALL), inputs)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
