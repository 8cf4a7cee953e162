import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.reference import fill, route, vote
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import clustercaps as cc
from clustercaps import ClusterCapsules2d
from clustercaps.testing import assert_finite

HERE = Path(__file__).parent


def small(**settings: object) -> ClusterCapsules2d:
    return ClusterCapsules2d(
        **{**dict(in_channels=4, in_dim=8, out_channels=4, out_dim=8, votes=5), **settings}
    )


def test_golden_layer() -> None:
    layer = ClusterCapsules2d(2, 2, 2, 2, votes=2, eps=0.0).double()
    with torch.no_grad():
        weights = [fill((8, 2, 3, 3), 0.3, 0.5 * i) for i in range(2)]
        biases = [fill((8,), 0.9, 0.2 + i) for i in range(2)]
        layer.vote.weight.copy_(torch.from_numpy(np.concatenate(weights)))
        layer.vote.bias.copy_(torch.from_numpy(np.concatenate(biases)))
    x = torch.from_numpy(np.stack([fill((2, 2, 2), 0.4, 0.3 * i) for i in range(2)]))
    golden = json.loads((HERE.parent / "golden/cluster.json").read_text())["cluster_layer"]["out"]
    torch.testing.assert_close(
        layer(x.unsqueeze(0))[0], torch.tensor(golden, dtype=torch.float64), rtol=0, atol=1e-8
    )


@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_equals_the_loops(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    k, padding = draw(1, 3), draw(0, 2)
    height, width = (draw(max(1, k - 2 * padding), 5) for _ in range(2))
    layer = ClusterCapsules2d(
        in_channels=draw(1, 3),
        in_dim=draw(1, 3),
        out_channels=draw(1, 2),
        out_dim=draw(1, 3),
        votes=draw(1, 4),
        clusters=draw(1, 2),
        kernel_size=k,
        stride=draw(1, 3),
        padding=padding,
        norm=False,
        bias=data.draw(st.booleans()),
        routing=data.draw(st.sampled_from(["cluster", "uniform"])),
    ).double()
    x = torch.randn(draw(0, 2), layer.in_channels, layer.in_dim, height, width, dtype=torch.float64)
    bias = None if layer.vote.bias is None else layer.vote.bias.detach().numpy()
    votes = vote(
        x.numpy(),
        layer.vote.weight.detach().numpy(),
        bias,
        layer.clusters,
        layer.votes,
        (layer.out_channels, layer.out_dim),
        layer.stride,
        padding,
    )
    expected, weights = route(votes, layer.eps, uniform=layer.routing == "uniform")
    capsules, trace = layer(x, trace=True)
    np.testing.assert_allclose(capsules.detach(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(trace.weights.detach(), weights, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(trace.votes.detach(), votes, rtol=1e-12, atol=1e-12)
    assert capsules.shape[3:] == layer.out_size((height, width))


def test_gradcheck() -> None:
    layer = ClusterCapsules2d(2, 2, 2, 2, votes=3, stride=2, in_size=3).double()
    x = torch.randn(2, 2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *values))


def test_norm_is_over_dim_and_map_and_shared_by_channels() -> None:
    layer = small(in_size=6)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "vote.weight": (4 * 5 * 4 * 8, 8, 3, 3),
        "vote.bias": (4 * 5 * 4 * 8,),
        "norm.weight": (8, 6, 6),
        "norm.bias": (8, 6, 6),
    }
    capsules = layer(torch.randn(2, 4, 8, 6, 6))
    torch.testing.assert_close(capsules.mean((2, 3, 4)), torch.zeros(2, 4), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        capsules.var((2, 3, 4), correction=0), torch.ones(2, 4), atol=1e-3, rtol=0
    )


def test_norm_without_in_size_takes_any_map() -> None:
    plain, sized = small(stride=2), small(stride=2, in_size=7)
    sized.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(2, 4, 8, 7, 7)
    torch.testing.assert_close(plain(x), sized(x))
    assert plain(torch.randn(1, 4, 8, 5, 9)).shape == (1, 4, 8, 3, 5)


def test_uniform_routing_is_a_convolution_with_averaged_weights() -> None:
    layer = small(routing="uniform", norm=False, clusters=2).double()
    x = torch.randn(2, 4, 8, 6, 6, dtype=torch.float64)
    weight = layer.vote.weight.unflatten(0, (4, 2, 5, 32)).mean((1, 2))  # [child, parent, D, 3, 3]
    bias = layer.vote.bias.unflatten(0, (4 * 2 * 5, 32)).mean(0)
    averaged = weight.transpose(0, 1).flatten(1, 2) / 4  # [parent, child*D, 3, 3]
    expected = F.conv2d(x.flatten(1, 2), averaged, bias, padding=1)
    torch.testing.assert_close(layer(x).flatten(1, 2), expected, rtol=1e-12, atol=1e-12)


def test_permuting_child_channels_changes_nothing() -> None:
    layer = small(norm=False, clusters=3).double()
    order = torch.tensor([2, 0, 3, 1])
    permuted = copy.deepcopy(layer)
    with torch.no_grad():
        for name in ("weight", "bias"):
            by_child = getattr(layer.vote, name).unflatten(0, (4, -1))
            getattr(permuted.vote, name).copy_(by_child[order].flatten(0, 1))
    x = torch.randn(2, 4, 8, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(permuted(x[:, order]), layer(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("votes", [1, 5])
@pytest.mark.parametrize("autocast", [False, True])
def test_finite_values_and_gradients(scale: float, votes: int, autocast: bool) -> None:
    layer = small(votes=votes, in_size=5, bias=False)
    x = (torch.randn(2, 4, 8, 5, 5) * scale).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        capsules = layer(x)
    capsules.float().square().sum().backward()
    assert_finite("capsules", capsules)
    assert_finite("gradients", x.grad, *(p.grad for p in layer.parameters()))


def test_identical_votes_have_finite_gradients() -> None:
    layer = small(in_size=5)
    with torch.no_grad():
        by_vote = layer.vote.weight.unflatten(0, (4, 5, 32))
        by_vote.copy_(by_vote[:, :1].expand_as(by_vote).clone())
        layer.vote.bias.zero_()
    x = torch.randn(2, 4, 8, 5, 5, requires_grad=True)
    layer(x).square().sum().backward()
    assert_finite("gradients", x.grad, *(p.grad for p in layer.parameters()))


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_any_batch(batch: int) -> None:
    layer = small(in_size=(5, 7), stride=2)
    x = torch.randn(batch, 4, 8, 5, 7, requires_grad=True)
    capsules = layer(x)
    assert capsules.shape == (batch, 4, 8, 3, 4)
    capsules.sum().backward()
    assert x.grad is not None


def test_trace_is_what_was_computed() -> None:
    layer = small(norm=False, stride=2)
    x = torch.randn(2, 4, 8, 5, 5)
    capsules, trace = layer(x, trace=True)
    assert isinstance(trace, cc.RoutingTrace)
    assert trace.votes.shape == (2, 4, 5, 4, 8, 3, 3)
    torch.testing.assert_close(capsules, layer(x))
    torch.testing.assert_close((trace.weights * trace.centroids).sum(1), capsules)
    confidence = 1 / trace.spread
    torch.testing.assert_close(trace.weights, confidence / confidence.sum(1, keepdim=True))


def test_repr_is_the_type_signature() -> None:
    assert repr(small(stride=2)) == "ClusterCapsules2d(4x8 -> 4x8, votes=5, clusters=1, stride=2)"
    assert repr(
        small(in_size=7, stride=2, norm=False, kernel_size=5, padding=1, routing="uniform")
    ) == (
        "ClusterCapsules2d(4x8 -> 4x8, votes=5, clusters=1, stride=2, maps=7x7 -> 3x3, "
        "kernel_size=5, padding=1, routing='uniform', norm=False)"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_and_device_pass_through(dtype: torch.dtype) -> None:
    layer = small(in_size=4, dtype=dtype, device="cpu")
    assert {p.dtype for p in layer.parameters()} == {dtype}
    assert layer(torch.randn(1, 4, 8, 4, 4, dtype=dtype)).dtype == dtype
    assert {p.device.type for p in small(in_size=4, device="meta").parameters()} == {"meta"}


def test_copies_and_state_dict() -> None:
    layer = small(in_size=4)
    x = torch.randn(1, 4, 8, 4, 4)
    torch.testing.assert_close(copy.deepcopy(layer)(x), layer(x))
    torch.testing.assert_close(pickle.loads(pickle.dumps(layer))(x), layer(x))
    fresh = small(in_size=4)
    fresh.load_state_dict(layer.state_dict())
    torch.testing.assert_close(fresh(x), layer(x))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"votes": 0}, "votes must be an integer of at least 1, got 0"),
        ({"stride": -1}, "stride must be an integer of at least 1, got -1"),
        ({"padding": -1}, "padding must be an integer of at least 0, got -1"),
        ({"eps": -1e-3}, "eps must not be negative"),
        ({"kernel_size": 5, "padding": 0, "in_size": 4}, "at least 5x5"),
    ],
)
def test_bad_arguments(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        small(**settings)


def test_unknown_routing() -> None:
    with pytest.raises(KeyError, match="did you mean 'uniform'"):
        small(routing="unifrom")


def run_without_shape_checks(script: str) -> None:
    """The tests' shape checks wrap every function, which torch.compile cannot look through."""
    done = subprocess.run(
        [sys.executable, str(HERE / script)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ((2, 8, 5, 5), r"batch, channels, dim, height, width.*\(2, 8, 5, 5\)"),
        ((2, 3, 8, 5, 5), "expected 4 channels of dim 8, got 3 of dim 8"),
        ((2, 4, 6, 5, 5), "expected 4 channels of dim 8, got 4 of dim 6"),
        ((2, 4, 8, 6, 5), r"built for feature maps of \(5, 5\), got \(6, 5\)"),
    ],
)
def test_bad_inputs(shape: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        small(in_size=5)._check_input(torch.zeros(shape))


def test_a_vanishing_map_is_named() -> None:
    with pytest.raises(ValueError, match=r"maps of 2x2 are too small.*at least 3x3"):
        small(padding=0)(torch.zeros(1, 4, 8, 2, 2))


def test_compile_and_export() -> None:
    run_without_shape_checks("check_compile.py")


def test_two_processes_train_as_one() -> None:
    run_without_shape_checks("check_ddp.py")
