"""A convolution over the whole map as a product, against the library's convolution."""

import pytest
import torch
from helpers.derivatives import FORMS
from torch import Tensor, nn
from torch.nn.utils import prune

from clustercaps.layers import WholeMapConv2d
from clustercaps.layers.whole_map import grouped_linear


def pair(bias: bool = True, groups: int = 2) -> tuple[WholeMapConv2d, nn.Conv2d]:
    torch.manual_seed(0)
    fast = WholeMapConv2d(4, 6, (3, 2), groups=groups, bias=bias).double()
    plain = nn.Conv2d(4, 6, (3, 2), groups=groups, bias=bias).double()
    plain.load_state_dict(fast.state_dict())
    return fast, plain


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize(("groups", "bias"), [(1, True), (2, True), (2, False)])
def test_values_and_gradients(batch: int, groups: int, bias: bool) -> None:
    fast, plain = pair(bias, groups)
    maps = torch.randn(batch, 4, 3, 2, dtype=torch.float64, requires_grad=True)
    got, right = fast(maps), plain(maps)
    torch.testing.assert_close(got, right)
    pull = torch.randn_like(right)
    grads = torch.autograd.grad(got, [maps, *fast.parameters()], pull)
    expected = torch.autograd.grad(right, [maps, *plain.parameters()], pull)
    torch.testing.assert_close(grads, expected)


def test_other_maps_and_strides_take_the_usual_way() -> None:
    fast, plain = pair()
    maps = torch.randn(2, 4, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(fast(maps), plain(maps))
    padded = WholeMapConv2d(1, 1, 3, padding=1)
    torch.manual_seed(1)
    image = torch.randn(1, 1, 3, 3)
    expected = nn.functional.conv2d(image, padded.weight, padded.bias, padding=1)
    torch.testing.assert_close(padded(image), expected)


@pytest.mark.parametrize("form", FORMS)
def test_derivatives_in_every_form(form: str) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 4), (2, 5, 4))
    given = [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]

    def plain(rows: Tensor, weights: Tensor) -> Tensor:
        return torch.einsum("gbk,gnk->gbn", rows, weights)

    fast = FORMS[form](grouped_linear, given)
    torch.testing.assert_close(fast, FORMS[form](plain, given), rtol=1e-9, atol=1e-9)


def test_autocast_and_frozen_weights() -> None:
    fast, plain = (module.float() for module in pair())
    maps = torch.randn(2, 4, 3, 2, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = fast(maps)
    torch.testing.assert_close(mixed.float(), plain(maps), rtol=0.05, atol=0.05)
    mixed.float().sum().backward()
    fast.weight.requires_grad_(False)
    fast.weight.grad = None
    fast(maps).sum().backward()
    assert fast.weight.grad is None


def test_pruning_and_hooks_are_seen() -> None:
    fast, plain = pair()
    for module in (fast, plain):
        prune.l1_unstructured(module, "weight", amount=0.5)
    maps = torch.randn(2, 4, 3, 2, dtype=torch.float64)
    torch.testing.assert_close(fast(maps), plain(maps))
    seen: list[Tensor] = []
    fast.register_forward_hook(lambda _, __, out: seen.append(out))
    fast(maps)
    assert seen[0].shape == (2, 6, 1, 1)
