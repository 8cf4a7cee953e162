"""Random calls of the kernel: the right value or a clean error, and never a crash.

`make test-asan` runs 2,000 of them under the address sanitizer, which also sees reads and writes
outside of a tensor; otherwise there are 100.
"""

import os
from collections import Counter
from functools import partial
from random import Random
from typing import Any

import pytest
import torch
from helpers.fuzz import LAYOUTS, SETTINGS, Call, broken, change, draw_call
from torch import Tensor, nn

from clustercaps import kernels
from clustercaps.kernels.cluster_cpu import fused_capsules, fused_capsules_grad
from clustercaps.routing import cluster_route

CASES = int(os.environ.get("CLUSTERCAPS_FUZZ_CASES", "100"))
# What PyTorch raises for wrong arguments. Anything else is a mistake in the checks.
CLEAN = (RuntimeError, ValueError, TypeError, IndexError, MemoryError)
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9, torch.bfloat16: 0.1, torch.float16: 0.02}


def outcome(function: Any) -> Tensor | list[Tensor] | Exception:
    try:
        return function()
    except CLEAN as error:
        return error


def reference(call: Call) -> Tensor:
    x, weight, bias, *sizes, norm, scale, shift, norm_eps = call.arguments()
    stride, padding, clusters, votes, out_channels, uniform, eps = sizes
    cast = torch.conv2d(x.flatten(1, 2), weight, bias, stride, padding, 1, x.shape[1])
    cast = cast.unflatten(1, (x.shape[1] * clusters, votes, out_channels, -1))
    capsules = cluster_route(cast, routing="uniform" if uniform else "cluster", eps=eps)[0]
    if not norm:
        return capsules
    return torch.nn.functional.layer_norm(capsules, capsules.shape[2:], scale, shift, norm_eps)


def layer(call: Call, backend: str, grad: bool, odd: dict[str, Any]) -> Tensor:
    x, weight, bias, *_, norm, scale, shift, norm_eps = call.arguments()
    stride, padding, clusters, votes, out_channels, uniform, eps = (
        call.settings[name] for name in SETTINGS
    )
    vote = nn.Conv2d(1, 1, 1)
    vote.groups, vote.stride, vote.padding = x.shape[1], (stride, stride), (padding, padding)
    floating = weight.is_floating_point()
    vote.weight = nn.Parameter(weight, requires_grad=grad and floating)
    vote.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
    for name, value in odd.items():
        setattr(vote, name, value)
    return kernels.cluster_capsules(
        x,
        vote,
        clusters=clusters,
        votes=votes,
        out_channels=out_channels,
        routing="uniform" if uniform else "cluster",
        eps=eps,
        norm=kernels.NormNumbers(scale, shift, norm_eps) if norm else None,
        backend=backend,
    ).detach()


def odd_convolution(random: Random, call: Call) -> dict[str, Any]:
    stride, padding = call.settings["stride"], call.settings["padding"]
    return random.choice(
        [
            {"stride": (stride, stride + 1)},
            {"padding": (padding + 1, padding)},
            {"dilation": (2, 2)},
            {"padding_mode": "circular"},
            {"groups": call.tensors["x"].shape[1] + 1},
            {"padding": "same"},
        ]
    )


def kind_of(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.layout, tensor.device


def same(actual: Tensor, expected: Tensor) -> bool:
    if kind_of(actual) != kind_of(expected):
        return False
    if expected.is_meta:
        return True
    near = TOLERANCE[expected.dtype] * (1 + expected.abs().nan_to_num(0, 0, 0).amax().item())
    return torch.allclose(actual, expected, rtol=near, atol=near, equal_nan=True)


def judge(actual: Any, expected: Any, valid: bool, strict: bool) -> str:
    """One word for the outcome; fails if it is neither the right value nor a clean error."""
    if isinstance(actual, Exception):
        assert str(actual), f"an error without a message: {actual!r}"
        assert not valid, f"a valid call was refused: {actual}"
        assert not strict or isinstance(expected, Exception), f"the reference computes: {actual}"
        return "clean error"
    assert not isinstance(expected, Exception), f"computed what the reference refuses: {expected}"
    actual, expected = ([r] if isinstance(r, Tensor) else r for r in (actual, expected))
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.numel() == 0 == theirs.numel() or same(mine, theirs), (mine, theirs)
    return "right value"


def gradients(random: Random, call: Call) -> tuple[Any, Any, bool]:
    """The backward operator with one wrong argument or layout, and the reference."""
    x, weight, bias, *sizes, norm, scale, shift, norm_eps = call.arguments()
    out, capsules, kept, moments = fused_capsules(*call.arguments())
    pull = torch.randn_like(out)
    names = ["gradient", "x", "weight", "bias", "norm_weight", "norm_bias"]
    names += ["capsules", "scale", "moments"]
    values = [pull, x, weight, bias, scale, shift, capsules if norm else out, kept, moments]
    given = dict(zip(names, values, strict=True))
    wanted = [True, True, bias is not None, scale is not None, scale is not None]
    name = random.choice([n for n in names if given[n] is not None])
    valid, undetectable = random.random() < 0.3, False
    if valid:
        given[name] = LAYOUTS[random.choice(list(LAYOUTS))](given[name])
    elif random.random() < 0.2:
        wanted = random.choice([wanted[:4], [*wanted, True], [True, True, True, True, False], []])
    else:
        before = given[name]
        kind, given[name] = broken(random, before)
        call.done.append(f"{name}: {kind}")
        # Cannot be told from a right one; empty moments mean that there is no norm.
        alike = kind_of(before) == kind_of(given[name])
        undetectable = alike or (name == "moments" and given[name].numel() == 0 and shift is None)
    leaves = [t.detach().requires_grad_() for t in (x, weight, bias, scale, shift) if t is not None]
    again = iter(leaves)
    taken = [None if t is None else next(again) for t in (x, weight, bias, scale, shift)]
    fresh = Call(dict(zip(call.tensors, taken, strict=True)), call.settings)
    right = torch.autograd.grad(reference(fresh), leaves, pull)

    def run() -> list[Tensor]:
        found = fused_capsules_grad(*given.values(), *sizes, norm_eps, wanted)
        return [grad for grad, need in zip(found, wanted, strict=True) if need]

    result = outcome(run)
    if undetectable and not isinstance(result, Exception):
        return [], [], False
    return result, list(right), valid


def try_one(seed: int) -> str:
    random = Random(seed)
    call = draw_call(random)
    entry = random.choice(["operator", "backward", "layer", "layer", "chunked"])
    if entry == "backward":
        actual, expected, valid = gradients(random, call)
        return judge(actual, expected, valid, strict=False)
    for _ in range(random.choice([0, 1, 1, 2])):
        change(random, call)
    if entry == "operator":
        actual = outcome(lambda: fused_capsules(*call.arguments())[0])
        return judge(actual, outcome(partial(reference, call)), call.valid, strict=False)
    odd = odd_convolution(random, call) if random.random() < 0.15 else {}
    grad = random.random() < 0.5
    # Forcing the fused kernel for tensors without data is refused.
    backend = "cpu" if entry == "layer" and call.tensors["x"].is_cpu else "chunked"
    expected = outcome(lambda: layer(call, "reference", grad, odd))
    actual = outcome(lambda: layer(call, backend, grad, odd))
    return judge(actual, expected, call.valid and not odd, strict=True)


def test_random_calls() -> None:
    counts: Counter[str] = Counter()
    for seed in range(CASES):
        try:
            counts[try_one(seed)] += 1
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    print(dict(counts))
    assert counts["right value"] > CASES / 4
    assert counts["clean error"] > CASES / 4


@pytest.mark.parametrize("backend", ["cpu", "chunked"])
def test_the_judge_sees_wrong_values(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = draw_call(Random(1))
    call.tensors["x"] = torch.randn(2, *call.tensors["x"].shape[1:]).to(call.tensors["x"].dtype)
    right = layer(call, backend, True, {})
    assert judge(right, reference(call), True, True) == "right value"
    with pytest.raises(AssertionError):
        judge(right + 0.1, reference(call), True, True)
    with pytest.raises(AssertionError, match="valid call was refused"):
        judge(RuntimeError("no"), right, True, True)
    with pytest.raises(AssertionError, match="the reference computes"):
        judge(RuntimeError("no"), right, False, True)
    with pytest.raises(AssertionError, match="the reference refuses"):
        judge(right, RuntimeError("no"), False, True)
