"""Convolutions with fewer products, against the convolution of PyTorch in float64."""

from typing import NamedTuple

import pytest
import torch
from helpers.derivatives import FORMS
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.nn.utils import prune
from torch.utils.flop_counter import FlopCounterMode

from clustercaps.kernels import conv
from clustercaps.layers import MinimalConv2d
from clustercaps.models import create_model


class Sizes(NamedTuple):
    """A convolution."""

    batch: int
    chans: tuple[int, int]
    side: tuple[int, int]
    kernel: int
    stride: int
    padding: int = 0
    groups: int = 1
    bias: bool = True

    @property
    def window(self) -> tuple[int, int, int]:
        return self.stride, self.padding, self.groups


# Whole tiles and parts of them, unused rows and columns at the end, one and two vectors of
# channels, several chunks of images.
CASES = [
    Sizes(1, (32, 32), (20, 20), 9, 2),
    Sizes(3, (48, 32), (12, 23), 9, 2, bias=False),
    Sizes(2, (32, 48), (9, 30), 9, 2, 4),
    Sizes(5, (64, 64), (14, 11), 9, 2, 8, 2),
    Sizes(1, (32, 32), (8, 8), 3, 1),
    Sizes(3, (48, 32), (7, 17), 3, 1, 1, bias=False),
    Sizes(2, (64, 96), (5, 28), 3, 1, 2, 2),
    Sizes(90, (32, 48), (13, 14), 3, 1, 1),
]


def draw(case: Sizes) -> list[Tensor]:
    """Maps, weight and bias."""
    dice = torch.Generator().manual_seed(case.side[0])
    shapes: list[tuple[int, ...]] = [(case.batch, case.chans[0], *case.side)]
    shapes += [(case.chans[1], case.chans[0] // case.groups, case.kernel, case.kernel)]
    shapes += [(case.chans[1],)] * case.bias
    return [torch.randn(shape, generator=dice) for shape in shapes]


def pull_of(result: Tensor) -> Tensor:
    """The gradient of the result that is used unless another one is given."""
    return torch.randn(result.shape, generator=torch.Generator().manual_seed(2))


def outcome(function, case: Sizes, tensors: list[Tensor], pull: Tensor | None = None):
    """The result and all gradients."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    maps, weight, bias = [*leaves, None][:3]
    result = function(maps, weight, bias, *case.window)
    pull = pull_of(result) if pull is None else pull
    return [result, *torch.autograd.grad(result, leaves, pull.to(result.dtype))]


def plain(
    maps: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, groups: int
):
    return conv2d(maps, weight, bias, stride, padding, groups=groups)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(case: Sizes) -> None:
    given = draw(case)
    bias = given[2] if case.bias else None
    assert conv.can_convolve(given[0], given[1], bias, *case.window)
    found = outcome(conv.convolve, case, given)
    right = outcome(plain, case, [tensor.double() for tensor in given])
    for number, (value, expected) in enumerate(zip(found, right, strict=True)):
        assert (value.double() - expected).norm() <= 4e-6 * expected.norm(), number
        assert value.is_contiguous()


@pytest.mark.parametrize(
    ("case", "times"),
    [(Sizes(8, (256, 256), (20, 20), 9, 2), 7), (Sizes(8, (64, 64), (28, 28), 3, 1, 1), 6)],
    ids=["capsnet", "ar_capsnet"],
)
def test_rounding_errors_of_the_networks(case: Sizes, times: float) -> None:
    """A few times those of PyTorch; the factor is larger where PyTorch adds up fewer products."""
    given = draw(case)
    right = outcome(plain, case, [tensor.double() for tensor in given])
    ours, theirs = (outcome(function, case, given) for function in (conv.convolve, plain))
    for number, value in enumerate(right):
        errors = [(each[number].double() - value).norm() for each in (ours, theirs)]
        assert errors[0] <= times * errors[1], number


@pytest.mark.parametrize("case", [CASES[1], CASES[5]], ids=str)
def test_zeros_strided_inputs_and_single_gradients(case: Sizes) -> None:
    given = draw(case)
    zeros = outcome(conv.convolve, case, [torch.zeros_like(given[0]), *given[1:]])
    assert not zeros[0].any()
    assert not zeros[2].any()
    expected = outcome(conv.convolve, case, given)
    strided = [given[0].to(memory_format=torch.channels_last), given[1].mT.contiguous().mT]
    pull = pull_of(expected[0])
    # A gradient without memory of its own for every entry.
    for tensors, each in ((strided, pull), (given, torch.ones(1).expand_as(pull))):
        found = outcome(conv.convolve, case, tensors, each)
        for value, right in zip(found, outcome(plain, case, given, each), strict=True):
            torch.testing.assert_close(value, right, rtol=1e-4, atol=1e-3)
    for n in range(2):
        leaves = [tensor.clone().requires_grad_(m == n) for m, tensor in enumerate(given)]
        result = conv.convolve(leaves[0], leaves[1], None, *case.window)
        (single,) = torch.autograd.grad(result, leaves[n], pull)
        assert torch.equal(single, expected[n + 1])


def test_the_same_bits_with_any_number_of_threads() -> None:
    threads, given = torch.get_num_threads(), draw(CASES[3])
    found = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            found.append(outcome(conv.convolve, CASES[3], given)[:3])
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_wrong_inputs_get_the_error_of_pytorch() -> None:
    maps, weight, bias = draw(CASES[0])
    wrong = [
        (maps[:, :16], weight, bias, 2, 0, 1),
        (maps, weight, bias[:-1], 2, 0, 1),
        (maps, weight, bias, 2, 0, 3),
        (maps[..., :5], weight, bias, 2, 0, 1),
        (maps, weight.double(), bias, 2, 0, 1),
        (maps[0, 0], weight, bias, 2, 0, 1),
    ]
    for arguments in wrong:
        assert not conv.can_convolve(*arguments)
        with pytest.raises(RuntimeError):
            conv.convolve(*arguments)


def test_others_are_computed_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, weight, bias = draw(CASES[0])
    assert conv.can_convolve(maps, weight, bias, 2, 0, 1)
    others = [
        (maps.double(), weight.double(), bias.double(), 2, 0, 1),
        (maps[:0], weight, bias, 2, 0, 1),
        (maps, weight, bias, 1, 0, 1),
        (maps, weight, bias, 2, 9, 1),
        (maps, weight[..., :5, :5], bias, 2, 0, 1),
        (maps, weight[:24], bias[:24], 2, 0, 1),
        (torch._neg_view(maps), weight, bias, 2, 0, 1),
    ]
    for arguments in others:
        assert not conv.can_convolve(*arguments)
        assert torch.equal(conv.convolve(*arguments), plain(*arguments))
    with torch.autocast("cpu", torch.bfloat16):
        assert conv.convolve(maps, weight, bias, 2, 0, 1).dtype is torch.bfloat16
    with torch._subclasses.FakeTensorMode() as fake:
        maps_, weight_, bias_ = map(fake.from_tensor, (maps, weight, bias))
        assert not conv.can_convolve(maps_, weight_, bias_, 2, 0, 1)
    monkeypatch.setenv("CLUSTERCAPS_BACKEND", "reference")
    assert not conv.can_convolve(maps, weight, bias, 2, 0, 1)


@pytest.mark.parametrize("form", FORMS)
def test_derivatives_in_every_form(form: str) -> None:
    dice = torch.Generator().manual_seed(0)
    shapes = ((1, 32, 7, 7), (32, 32, 3, 3))
    given = [torch.randn(shape, generator=dice) / 8 for shape in shapes]

    def fast(maps: Tensor, weight: Tensor) -> Tensor:
        # Few numbers: some forms compute whole matrices of second derivatives.
        return conv.convolve(maps, weight, None, 1, 1, 1)[:, :2, :2].mean((0, 1))

    def right(maps: Tensor, weight: Tensor) -> Tensor:
        return conv2d(maps, weight, None, 1, 1)[:, :2, :2].mean((0, 1))

    if "hessian" in form:
        pytest.skip("the matrix is too large")
    found, expected = FORMS[form](fast, given), FORMS[form](right, given)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_counters_see_a_convolution() -> None:
    layer = MinimalConv2d(32, 32, 3, padding=1)
    maps = torch.randn(2, 32, 8, 8)
    with FlopCounterMode(display=False) as counter:
        layer(maps).sum().backward()
    # Forward and gradient of the weight.
    assert counter.get_total_flops() == 2 * 2 * 2 * 32 * 32 * 9 * 64


def test_module_sees_hooks_pruning_and_unusual_settings() -> None:
    torch.manual_seed(0)
    maps = torch.randn(2, 32, 13, 13)
    for settings in (
        {"padding": 1},
        {"padding": "same"},
        {"padding": (1, 0)},
        {"padding": 1, "dilation": 2},
        {"padding": 1, "padding_mode": "circular"},
        {"stride": (1, 2)},
    ):
        fast, usual = (kind(32, 32, 3, **settings) for kind in (MinimalConv2d, nn.Conv2d))
        usual.load_state_dict(fast.state_dict())
        for module in (fast, usual):
            prune.l1_unstructured(module, "weight", amount=0.5)
        seen: list[Tensor] = []
        fast.register_forward_hook(lambda _, __, out, seen=seen: seen.append(out))
        torch.testing.assert_close(fast(maps), usual(maps), rtol=1e-4, atol=1e-5)
        assert len(seen) == 1


def test_exported_programs_have_an_ordinary_convolution() -> None:
    layer, maps = MinimalConv2d(32, 32, 3, padding=1), torch.randn(2, 32, 8, 8)
    program = torch.export.export(layer, (maps,))
    torch.testing.assert_close(program.module()(maps), layer(maps), rtol=1e-4, atol=1e-5)
    traced = torch.jit.trace(layer, maps)
    assert "convolution" in str(traced.inlined_graph)


@pytest.mark.parametrize("model", ["capsnet", "ar_capsnet"])
def test_networks_compute_the_same(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = create_model(model, width=32)
    images, outcomes = torch.rand(2, 1, 28, 28), []
    for backend in ("cpu", "reference"):
        monkeypatch.setenv("CLUSTERCAPS_BACKEND", backend)
        torch.manual_seed(1)
        scores = network(images)
        used = [p for name, p in network.named_parameters() if "decoder" not in name]
        outcomes.append([scores, *torch.autograd.grad(scores.sum(), used)])
    for actual, expected in zip(*outcomes, strict=True):
        error = (actual - expected).norm()
        assert error <= 1e-3 * expected.norm() + 1e-6
