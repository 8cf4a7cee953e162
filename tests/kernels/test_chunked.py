"""The path without a compiler against the reference: values and every gradient."""

import pytest
import torch
from helpers.layer_case import Case, cases, gradients
from hypothesis import given, settings

from clustercaps import kernels
from clustercaps.kernels import build, chunked
from clustercaps.kernels.plain import Shape
from clustercaps.layers.cluster import ClusterCapsules2d
from clustercaps.testing import assert_close, assert_finite

NAMES = ("capsules", "input gradient", "weight gradient", "bias gradient")


def chunked_layer(case: Case):
    shape = Shape(
        case.stride,
        case.padding,
        case.in_channels,
        case.in_channels * case.clusters,
        case.votes,
        case.uniform,
        case.eps,
    )

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None):
        flat = chunked.ChunkedCapsules.apply(x.flatten(1, 2), weight, bias, shape)
        return flat.unflatten(1, (case.out_channels, case.out_dim))

    return run


def assert_like_reference(case: Case) -> None:
    tensors = case.tensors(torch.float64)
    ours, right = gradients(chunked_layer(case), tensors), gradients(case.reference, tensors)
    for name, actual, expected in zip(NAMES, ours, right, strict=False):
        assert_close(name, actual, expected, 1e-11)


@settings(deadline=None, max_examples=40)
@given(cases())
def test_any_shape(case: Case) -> None:
    assert_like_reference(case)


@pytest.mark.parametrize("images", [1, 2, 5])
def test_any_chunk(monkeypatch: pytest.MonkeyPatch, images: int) -> None:
    monkeypatch.setattr(chunked, "chunk_size", lambda *_: images)
    for batch in (0, 1, 5, 7):
        assert_like_reference(Case(batch=batch))
        assert_like_reference(Case(batch=batch, uniform=True))


def test_gradcheck() -> None:
    case = Case(batch=2, in_channels=1, in_dim=1, height=3, width=2, out_channels=1, out_dim=2)
    tensors = [t.requires_grad_() for t in case.tensors(torch.float64)]
    assert torch.autograd.gradcheck(chunked_layer(case), tensors)


@pytest.mark.parametrize("frozen", ["input", "weight"])
def test_what_is_frozen_gets_no_gradient(frozen: str) -> None:
    layer = ClusterCapsules2d(2, 3, 2, 3, votes=4, backend="chunked", norm=False)
    x = torch.randn(2, 2, 3, 5, 5, requires_grad=frozen != "input")
    layer.vote.weight.requires_grad_(frozen != "weight")
    layer(x).sum().backward()
    assert (x.grad is None) == (frozen == "input")
    assert (layer.vote.weight.grad is None) == (frozen == "weight")


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_autocast_is_finite_and_near_the_reference(scale: float) -> None:
    layer = ClusterCapsules2d(2, 3, 2, 3, votes=4, backend="chunked", in_size=5)
    x = (torch.randn(2, 2, 3, 5, 5) * scale).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        capsules = layer(x)
        layer.backend = "reference"
        expected = layer(x)
    assert capsules.dtype == expected.dtype
    assert_close("capsules", capsules, expected, 0.02)
    capsules.float().square().sum().backward()
    assert_finite("gradients", x.grad, *(p.grad for p in layer.parameters()))


def test_forcing_it_looks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Asked for in every call: looking for a compiler would cost more than one image.
    monkeypatch.setattr(build, "find_compiler", lambda: pytest.fail("looked for a compiler"))
    assert kernels.choose("chunked", "cpu") == "chunked"
