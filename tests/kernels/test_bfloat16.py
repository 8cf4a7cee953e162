"""Products in bfloat16: exactly the rounding that is promised, and no more."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from helpers.layer_case import Case, cases, gradients
from hypothesis import given, settings
from torch import Tensor
from torch.nn.functional import conv2d

import clustercaps as cc
from clustercaps.kernels import library
from clustercaps.kernels.cluster_cpu import fused_capsules
from clustercaps.testing import assert_finite

pytestmark = pytest.mark.skipif(
    not library.load().has_bfloat16, reason="the processor has no AVX-512 BF16"
)


def fused(case: Case, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return fused_capsules(
        *(x, weight, bias, case.stride, case.padding, case.clusters, case.votes),
        *(case.out_channels, case.uniform, case.eps, False, None, None, 0.0, True),
    )[0]


def to_contrasts(votes: int) -> Tensor:
    """The orthogonal map, scaled, from K votes to their mean and contrasts [K, K]."""
    rows = torch.zeros(votes, votes, dtype=torch.float64)
    rows[0] = 1 / votes
    for j in range(1, votes):
        rows[j, :j], rows[j, j] = 1.0, -float(j)
        rows[j] /= (j * (j + 1) * votes) ** 0.5
    return rows


def emulated(case: Case, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Capsules in float64 from input and weights of mean and contrasts rounded to bfloat16."""

    def turned(values: Tensor) -> Tensor:
        apart = values.double().unflatten(0, (-1, case.votes, case.out_channels * case.out_dim))
        return torch.einsum("jk,ikp...->ijp...", to_contrasts(case.votes), apart).flatten(0, 2)

    rounded = turned(weight).float().bfloat16().double()
    groups = {"stride": case.stride, "padding": case.padding, "groups": case.in_channels}
    children = x.bfloat16().double().flatten(1, 2)
    bias = None if bias is None else turned(bias)
    rows = conv2d(children, rounded, bias, **groups)
    rows = rows.unflatten(1, (-1, case.votes, case.out_channels, case.out_dim))
    confidence = (rows[:, :, 1:].square().sum(2) + case.eps).rsqrt()
    if case.uniform:
        confidence = torch.ones_like(confidence)
    return (confidence * rows[:, :, 0]).sum(1) / confidence.sum(1)


def rounding(actual: Tensor, right: Tensor) -> float:
    return float((actual.double() - right).norm() / right.norm().clamp(min=1e-30))


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("votes", [1, 2, 5, 8, 11])
def test_factors_are_rounded_and_nothing_else(votes: int, uniform: bool) -> None:
    case = Case(in_dim=5, height=17, width=16, votes=votes, out_dim=6, uniform=uniform, eps=0.1)
    tensors = case.tensors(torch.float32)
    found, right = fused(case, *tensors), emulated(case, *tensors)
    exact = case.reference(*(t.double() for t in tensors))
    # Weights of contrasts are computed in float32; one near the middle may be rounded differently.
    assert rounding(found, right) < 0.1 * rounding(found, exact)


@settings(deadline=None, max_examples=40)
@given(cases())
def test_gradients_are_those_of_the_reference_to_the_precision_of_bfloat16(case: Case) -> None:
    case = replace(case, eps=0.1)
    tensors = case.tensors(torch.float32)
    found = gradients(partial(fused, case), tensors)
    exact = gradients(case.reference, [t.double() for t in tensors])
    assert_finite("gradients", *found)
    for actual, right in zip(found, exact, strict=True):
        assert actual.dtype == torch.float32
        # A gradient of a handful of numbers can cancel; 8 bits leave 2^-8 of each term.
        assert rounding(actual, right) < 0.05 or right.numel() < 50 or right.norm() < 1e-3


@pytest.mark.parametrize("votes", range(1, 10))
@pytest.mark.parametrize("in_dim", [1, 6])
def test_maps_of_the_paper(votes: int, in_dim: int) -> None:
    case = Case(batch=3, in_dim=in_dim, height=32, width=32, votes=votes, out_dim=6, stride=2)
    tensors = case.tensors(torch.float32)
    found = gradients(partial(fused, case), tensors)
    exact = gradients(case.reference, [t.double() for t in tensors])
    for actual, right in zip(found, exact, strict=True):
        assert 1e-6 < rounding(actual, right) < (0.04 if votes == 2 else 0.02)


def test_without_an_input_gradient() -> None:
    case = Case(batch=3, in_dim=1, height=32, width=32, votes=5, out_dim=6)
    x, weight, bias = case.tensors(torch.float32)
    exact = gradients(case.reference, [t.double() for t in (x, weight, bias)])
    found = gradients(lambda *leaves: fused(case, x, *leaves), [weight, bias])
    for actual, right in zip(found[1:], exact[2:], strict=True):
        assert 1e-6 < rounding(actual, right) < 0.02


def test_infinity_and_nan_stay() -> None:
    case = Case(batch=3, in_channels=1, height=9, width=9)
    for value in (torch.inf, torch.nan):
        x, weight, bias = case.tensors(torch.float32)
        x[1, 0, 0, 4, 4] = value
        wanted = case.reference(x, weight, bias).isnan()
        assert torch.equal(fused(case, x, weight, bias).isnan(), wanted)


def test_same_bits_every_time() -> None:
    case = Case(batch=5, in_channels=1, height=20, width=20, votes=5)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        first, again = (
            gradients(partial(fused, case), case.tensors(torch.float32)) for _ in range(2)
        )
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_autocast_rounds_products_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = cc.ClusterCapsules2d(2, 6, 2, 6, votes=5, in_size=9)
    x = torch.randn(3, 2, 6, 9, 9)
    with torch.no_grad():
        exact = layer(x)
        errors = {}
        for short in (True, False):
            monkeypatch.setattr(library, "bfloat16_products", lambda short=short: (short, ""))
            with torch.autocast("cpu", torch.bfloat16):
                capsules = layer(x)
            assert capsules.dtype == torch.float32
            errors[short] = rounding(capsules, exact.double())
    assert 1e-4 < errors[True] < 0.01
    assert errors[True] != errors[False]


@pytest.mark.parametrize("in_dim", [1, 6])
def test_an_image_alone_has_the_same_bits_as_in_a_batch(in_dim: int) -> None:
    case = Case(batch=12, in_dim=in_dim, height=8, width=8, votes=8, out_dim=17)
    x, weight, bias = case.tensors(torch.float32)
    # Rounded to the nearest, also where the bits of a number are special.
    weight[0, 0] = torch.tensor(
        [torch.inf, torch.nan, 1e-42, -0.0, 3e38, 1.0, 1.00390625, 0, 0]
    ).view(3, 3)
    torch.set_num_threads(1)
    together = fused(case, x, weight, bias)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        alone = fused(case, x[1:2], weight, bias)
        torch.testing.assert_close(alone, together[1:2], rtol=0, atol=0, equal_nan=True)
