"""Wrong inputs of the fused kernel: PyTorch's own error, or a clear one, before it runs."""

from typing import Any

import pytest
import torch
from helpers.layer_case import Case
from torch import Tensor, nn

import clustercaps as cc
from clustercaps.kernels.cluster_cpu import fused_capsules, fused_capsules_grad
from clustercaps.kernels.plain import like_conv2d

SIZES = {"stride": 1, "padding": 1, "clusters": 1, "votes": 4, "out_channels": 2}
CASE = Case()


def arguments(**changes: Any) -> tuple[Any, ...]:
    """Arguments of the operator with a norm, some of them changed."""
    x, weight, bias = CASE.tensors(torch.float32)
    parameter = torch.ones(CASE.out_dim, CASE.height, CASE.width)
    given: dict[str, Any] = {"x": x, "weight": weight, "bias": bias, **SIZES, "uniform": False}
    given |= {"eps": 1e-3, "norm": True, "norm_weight": parameter, "norm_bias": parameter}
    return tuple((given | {"norm_eps": 1e-5} | changes).values())


X, WEIGHT, BIAS = CASE.tensors(torch.float32)
MAP = torch.ones(CASE.out_dim, CASE.height, CASE.width)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "short bias": ({"bias": BIAS[:-1]}, "rows, but the bias has shape"),
    "bias with axes": ({"bias": BIAS.view(-1, 1)}, "rows, but the bias has shape"),
    "in_dim": ({"weight": WEIGHT[:, :2]}, r"need a weight \[rows, 3, kernel, kernel\]"),
    "window not square": ({"weight": WEIGHT[..., :2]}, "need a weight"),
    "rows": ({"weight": WEIGHT[:-1], "bias": BIAS[:-1]}, "which is no multiple of 16"),
    "no rows": ({"weight": WEIGHT[:0], "bias": BIAS[:0]}, "empty axis"),
    "axes": ({"x": X[0]}, "expected capsules"),
    "empty map": ({"x": X[..., :0]}, "empty axis"),
    "small map": ({"x": X[..., :1], "padding": 0}, "too small for kernel=3, padding=0"),
    "norm in bfloat16": ({"norm_weight": MAP.bfloat16()}, "must be dense and like the capsules"),
    "norm in float64": ({"norm_bias": MAP.double()}, "must be dense and like the capsules"),
    "bias in float64": ({"bias": BIAS.double()}, "must be dense and like the capsules"),
    "half precision": ({"x": X.half()}, "must be float32 or float64"),
    "integers": ({"x": X.long()}, "must be float32 or float64"),
    "complex": ({"x": X.to(torch.complex64)}, "must be float32 or float64"),
    "meta weight": ({"weight": WEIGHT.to("meta")}, "must be dense and like the capsules"),
    "sparse norm": ({"norm_weight": MAP.to_sparse()}, "Sparse"),
    "scale alone": ({"norm_bias": None}, "both a scale and a shift"),
    "shift alone": ({"norm_weight": None}, "both a scale and a shift"),
    "no norm": ({"norm": False}, "norm=False"),
    "norm of another map": ({"norm_weight": MAP[:, :, :-1]}, "but the feature maps have shape"),
    "stride 0": ({"stride": 0}, "must be at least 1"),
    "stride -1": ({"stride": -1}, "must be at least 1"),
    "padding -1": ({"padding": -1}, "padding at least 0"),
    "votes 0": ({"votes": 0}, "must be at least 1"),
    "clusters 5": ({"clusters": 5}, "no multiple"),
    "eps negative": ({"eps": -1e-3}, "eps must be between"),
    "eps NaN": ({"eps": float("nan")}, "eps must be between"),
    "eps infinite": ({"norm_eps": float("inf")}, "eps must be between"),
    "huge batch": ({"x": X[:1].expand(2**50, -1, -1, -1, -1)}, "is too large"),
    "huge stride": ({"stride": 2**40, **dict.fromkeys(["norm_weight", "norm_bias"])}, "too large"),
    "huge padding": ({"padding": 2**20, "stride": 2**20}, "feature maps"),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_operator_refuses(what: str) -> None:
    changes, message = WRONG[what]
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        fused_capsules(*arguments(**changes))


def test_the_right_arguments_are_accepted() -> None:
    assert fused_capsules(*arguments())[0].isfinite().all()


SAVED = ("gradient", "x", "weight", "bias", "norm_weight", "norm_bias", "capsules", "scale")


def gradient_arguments() -> dict[str, Any]:
    x, weight, bias, *sizes, eps, _, scale, shift, norm_eps = arguments()
    out, capsules, kept, moments = fused_capsules(*arguments())
    tensors = (torch.ones_like(out), x, weight, bias, scale, shift, capsules, kept)
    given = dict(zip(SAVED, tensors, strict=True)) | {"moments": moments}
    given |= {str(number): size for number, size in enumerate(sizes)}
    return given | {"eps": eps, "norm_eps": norm_eps, "needed": [True] * 5}


@pytest.mark.parametrize("name", [*SAVED, "moments"])
def test_the_backward_operator_refuses_wrong_tensors(name: str) -> None:
    given = gradient_arguments()
    right = given[name]
    for wrong in (right[..., :-1], right.double(), right.to("meta"), right.unsqueeze(0)):
        with pytest.raises(RuntimeError):
            fused_capsules_grad(*(given | {name: wrong}).values())
    fused_capsules_grad(*given.values())


@pytest.mark.parametrize("needed", [[], [True] * 4, [True] * 6, [True, True, True, True, False]])
def test_the_backward_operator_refuses_other_lists(needed: list[bool]) -> None:
    with pytest.raises(RuntimeError, match="needed must contain 5 values"):
        fused_capsules_grad(*(gradient_arguments() | {"needed": needed}).values())


def test_moments_may_have_gaps() -> None:
    given = gradient_arguments()
    gaps = torch.stack([given["moments"], torch.zeros_like(given["moments"])], -1)[..., 0]
    right = fused_capsules_grad(*given.values())
    found = fused_capsules_grad(*(given | {"moments": gaps}).values())
    for mine, theirs in zip(found, right, strict=True):
        assert torch.equal(mine, theirs)


def layer(backend: str = "cpu", **settings: Any) -> cc.ClusterCapsules2d:
    torch.manual_seed(0)
    return cc.ClusterCapsules2d(2, 3, 2, 3, votes=4, in_size=(7, 6), backend=backend, **settings)


def change(module: cc.ClusterCapsules2d, how: str) -> None:
    vote, norm = module.vote, module.norm
    if how == "bias":
        vote.bias = nn.Parameter(vote.bias[:-1].detach())
    elif how == "in_dim":
        vote.weight = nn.Parameter(vote.weight[:, :2].detach())
    elif how == "norm in bfloat16":
        norm.bfloat16()
    elif how == "norm in float64":
        norm.double()
    elif how == "norm's shift in float64":
        norm.bias = nn.Parameter(norm.bias.detach().double())
    elif how == "meta weight":
        vote.to("meta")
    elif how == "meta bias":
        vote.bias = nn.Parameter(vote.bias.detach().to("meta"))
    elif how == "groups":
        vote.groups = 1
    else:
        norm.to("meta")


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("backend", ["cpu", "chunked", "reference"])
@pytest.mark.parametrize(
    "how",
    [
        *("bias", "in_dim", "norm in bfloat16", "norm in float64", "norm's shift in float64"),
        *("meta weight", "meta bias", "meta norm", "groups"),
    ],
)
def test_layers_with_wrong_parameters(how: str, backend: str, grad: bool) -> None:
    module = layer(backend)
    change(module, how)
    with torch.set_grad_enabled(grad), pytest.raises(RuntimeError, match=r"\w+ \w+"):
        module(X)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("backend", ["cpu", "chunked"])
@pytest.mark.parametrize(
    "options",
    [
        {"dilation": (2, 2), "padding": (2, 2)},
        {"padding_mode": "circular"},
        {"padding": "same"},
        {"stride": (1, 2)},
        {"padding": (1, 2)},
    ],
)
def test_other_convolutions_take_the_reference(
    options: dict[str, Any], backend: str, grad: bool
) -> None:
    made = [layer(name, norm=False) for name in (backend, "reference")]
    for module in made:
        for name, value in options.items():
            setattr(module.vote, name, value)
        if options.get("padding_mode"):
            module.vote._reversed_padding_repeated_twice = [1, 1, 1, 1]
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(made[0](X), made[1](X))


def test_views_with_a_sign_of_their_own() -> None:
    module, reference = layer(), layer("reference")
    turned = torch.view_as_complex(torch.randn(*X.shape, 2)).conj().imag
    assert turned.is_neg()
    for x in (turned, torch._neg_view(X), X[:1].expand(3, 2, 3, 7, 6)):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                torch.testing.assert_close(module(x), reference(x))


def test_senseless_eps_takes_the_reference() -> None:
    for eps in (float("nan"), -1.0):
        made = [layer(name) for name in ("cpu", "reference")]
        for module in made:
            module.eps = eps
        torch.testing.assert_close(made[0](X), made[1](X), equal_nan=True)


def test_a_tensor_without_memory_is_refused() -> None:
    module = layer()
    module.vote.weight.untyped_storage().resize_(0)
    with torch.no_grad(), pytest.raises(RuntimeError, match="has no memory"):
        module(X)


def test_two_million_votes() -> None:
    count = 2**21 + 1
    x, weight = torch.ones(1, 1, 1, 1, 1), torch.randn(count, 1, 1, 1)
    sizes = (1, 0, 1, count, 1, False, 1e-3, False, None, None, 0.0)
    mean, _, spread, _ = fused_capsules(x, weight, None, *sizes)
    assert mean.item() == pytest.approx(weight.double().mean().item(), abs=1e-4)
    assert spread.item() == pytest.approx((weight.double().var() + 1e-3).sqrt().item(), rel=1e-3)


def test_autocast_leaves_what_autocast_leaves() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert like_conv2d(X, WEIGHT.double(), None) is None
        assert like_conv2d(X.long(), WEIGHT, None) is None
        found = like_conv2d(X, WEIGHT, BIAS)
    assert found is not None
    assert all(isinstance(t, Tensor) and t.dtype == torch.bfloat16 for t in found)
    assert like_conv2d(X.to(torch.float8_e4m3fn), WEIGHT.to(torch.float8_e4m3fn), None) is None
