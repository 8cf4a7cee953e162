"""Layers with the Triton backend, on a GPU or under TRITON_INTERPRET=1."""

import pytest
import torch
from helpers.derivatives import FORMS
from torch import Tensor

import clustercaps as cc
from clustercaps import kernels
from clustercaps.testing import assert_close

pytestmark = pytest.mark.triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).to(DEVICE, dtype)


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
    assert_close("capsules", capsules, layer(x), 2e-2)
    capsules.float().square().sum().backward()
    assert layer.vote.weight.grad.dtype == torch.float32


def test_bad_shapes_take_the_error_of_the_reference() -> None:
    layer = cc.ClusterCapsules2d(2, 3, 2, 4, votes=5, norm=False, backend="triton").to(DEVICE)
    layer.vote.bias = torch.nn.Parameter(torch.zeros(7, device=DEVICE))
    with pytest.raises(RuntimeError, match="bias"):
        layer(draw(2, 2, 3, 5, 5, dtype=torch.float32))


def test_is_available_and_never_chosen_for_cpu_unasked() -> None:
    assert kernels.available()["triton"].usable
    assert kernels.choose("triton", DEVICE) == "triton"
    assert kernels.choose("auto", "cpu") != "triton"
