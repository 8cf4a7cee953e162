"""The fused kernel against the reference in float64: values and every gradient."""

from dataclasses import replace

import pytest
import torch
from helpers.layer_case import Case, cases, gradients
from hypothesis import given, settings

from clustercaps.testing import assert_close, assert_finite

NAMES = ("capsules", "input gradient", "weight gradient", "bias gradient")


def assert_like_reference(
    case: Case, dtype: torch.dtype, tensors=None, limit: float = 1e-6
) -> None:
    """In float64 to 1e-12. In float32 to `limit`, or to twice what float32 costs the
    reference, where terms cancel."""
    tensors = case.tensors(dtype) if tensors is None else tensors
    fused = gradients(case.fused, tensors)
    single = gradients(case.reference, tensors)
    exact = gradients(case.reference, [t.double() for t in tensors])
    for name, actual, rounded, right in zip(NAMES, fused, single, exact, strict=False):
        assert actual.dtype == dtype
        ratio = 1e-12 if dtype == torch.float64 else max(limit, 2 * rms_error(rounded, right))
        assert_close(name, actual, right, ratio)


def rms_error(actual: torch.Tensor, right: torch.Tensor) -> float:
    return float((actual - right).norm() / right.norm()) if right.norm() > 0 else 0.0


@settings(deadline=None, max_examples=60)
@given(cases())
def test_float64(case: Case) -> None:
    assert_like_reference(case, torch.float64)


@settings(deadline=None, max_examples=60)
@given(cases())
def test_float32(case: Case) -> None:
    # A few votes of one tiny map can have a variance near zero, whose gradient no float32 can hold.
    # If terms cancel in a handful of outputs, the reference may round them well by chance.
    assert_like_reference(replace(case, eps=0.1), torch.float32, limit=2e-6)


@pytest.mark.parametrize("votes", range(1, 10))
@pytest.mark.parametrize("threads", [1, 2])
def test_maps_of_the_paper(votes: int, threads: int) -> None:
    torch.set_num_threads(threads)
    case = Case(batch=3, in_dim=6, height=32, width=32, votes=votes, out_dim=6, stride=2)
    assert_like_reference(case, torch.float32)


@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches(batch: int) -> None:
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert_like_reference(Case(batch=batch), torch.float64)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_gradcheck(stride: int) -> None:
    case = Case(batch=1, height=4, width=5, clusters=2, votes=3, out_dim=2, stride=stride)
    tensors = [t.requires_grad_() for t in case.tensors(torch.float64)]
    torch.autograd.gradcheck(case.fused, tensors)


def test_identical_votes() -> None:
    case = Case(votes=3)
    x, weight, bias = case.tensors(torch.float64)
    rows = (case.in_channels * case.clusters, case.votes, -1)
    weight = weight.unflatten(0, rows)[:, :1].expand(-1, 3, -1, -1, -1, -1).flatten(0, 2)
    bias = bias.unflatten(0, rows)[:, :1].expand(-1, 3, -1).flatten()
    assert_like_reference(case, torch.float64, [x, weight, bias])


@pytest.mark.parametrize("scale", [0.0, 1e-4, 1e4])
def test_scaled_input(scale: float) -> None:
    case = replace(Case(), eps=1e-6)
    x, weight, bias = case.tensors(torch.float64)
    tensors = [x * scale, weight, bias * scale]
    assert_like_reference(case, torch.float64, tensors)
    single = gradients(case.fused, [t.float() for t in tensors])
    assert_finite("float32", *single)
    assert_close("capsules", single[0], case.reference(*tensors), 1e-5)


def test_without_eps_identical_votes_are_nan_as_in_the_reference() -> None:
    case = replace(Case(votes=1), eps=0.0)
    for dtype in (torch.float32, torch.float64):
        tensors = case.tensors(dtype)
        assert case.reference(*tensors).isnan().all()
        assert case.fused(*tensors).isnan().all()


def test_nan_stays_where_it_belongs() -> None:
    case = Case(batch=3, in_channels=1, height=9, width=9)
    x, weight, bias = case.tensors(torch.float32)
    x[1, 0, 0, 4, 4] = torch.nan
    assert torch.equal(case.fused(x, weight, bias).isnan(), case.reference(x, weight, bias).isnan())


def test_non_contiguous_tensors() -> None:
    case = Case(height=6, width=7)
    x, weight, bias = case.tensors(torch.float64)
    turned = [
        x.transpose(3, 4).contiguous().transpose(3, 4),
        weight.to(memory_format=torch.channels_last),
        bias.repeat_interleave(2)[::2],
    ]
    assert not any(t.is_contiguous() for t in turned)
    assert_like_reference(case, torch.float64, turned)
    # A gradient that autograd expands from one number has strides of zero.
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    got = torch.autograd.grad(case.fused(*leaves).sum(), leaves)
    for actual, right in zip(
        got, torch.autograd.grad(case.reference(*leaves).sum(), leaves), strict=True
    ):
        torch.testing.assert_close(actual, right)


@pytest.mark.parametrize("in_dim", [1, 3])
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
def test_frozen_tensors(wanted: tuple[int, ...], in_dim: int) -> None:
    case = Case(in_dim=in_dim, height=9)
    tensors = case.tensors(torch.float64)
    for index in wanted:
        tensors[index].requires_grad_()
    leaves = [tensors[index] for index in wanted]
    got = torch.autograd.grad(case.fused(*tensors).square().sum(), leaves)
    right = torch.autograd.grad(case.reference(*tensors).square().sum(), leaves)
    for actual, expected in zip(got, right, strict=True):
        assert_close("gradient", actual, expected, 1e-12)


def test_same_bits_every_time() -> None:
    case = Case(batch=5, in_channels=1, height=20, width=20, votes=5)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        first = gradients(case.fused, case.tensors(torch.float32))
        for _ in range(3):
            again = gradients(case.fused, case.tensors(torch.float32))
            assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("votes", range(1, 10))
@pytest.mark.parametrize("side", [4, 8, 12, 16])
def test_an_image_alone_has_the_same_bits_as_in_a_batch(side: int, votes: int) -> None:
    """Alone: narrow panels, weights transformed where they are used, parents divided. Maps are in
    whole vectors, since the last division of single entries is rounded differently."""
    images = 2 + 1024 // side**2
    case = Case(images, in_dim=5, height=side, width=side, votes=votes, out_dim=17)
    x, weight, bias = case.tensors(torch.float32)
    torch.set_num_threads(1)
    together = case.fused(x, weight, bias)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(case.fused(x[1:2], weight, bias), together[1:2])
