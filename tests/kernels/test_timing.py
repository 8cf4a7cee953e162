"""`kernel_seconds` counts the time inside the kernel, by what it is for."""

import time

import pytest
import torch

import clustercaps as cc
from clustercaps.kernels.library import kernel_seconds


@pytest.fixture
def layer() -> cc.ClusterCapsules2d:
    return cc.ClusterCapsules2d(2, 3, 2, 3, votes=2, in_size=6, backend="cpu")


def test_training_and_inference_are_told_apart(layer: cc.ClusterCapsules2d) -> None:
    x = torch.randn(4, 2, 3, 6, 6)
    with kernel_seconds() as spent, torch.no_grad():
        layer(x)
    assert spent["inference"] > 0
    assert spent["forward"] == spent["backward"] == 0
    begin = time.perf_counter()
    with kernel_seconds() as spent:
        out = layer(x)
        forward = spent["forward"]
        assert forward > 0
        assert spent["backward"] == 0
        out.sum().backward()
    assert spent["forward"] == forward
    assert spent["backward"] > 0
    assert spent["inference"] == 0
    assert sum(spent.values()) < time.perf_counter() - begin


def test_clocks_stop_and_do_not_disturb_each_other(layer: cc.ClusterCapsules2d) -> None:
    x = torch.randn(4, 2, 3, 6, 6)
    with torch.no_grad(), kernel_seconds() as outer:
        with kernel_seconds() as inner:
            pass
        layer(x)
        seen = outer["inference"]
        with pytest.raises(ValueError, match="stop"), kernel_seconds():
            raise ValueError("stop")
        layer(x)
    assert outer["inference"] > seen > 0
    assert sum(inner.values()) == 0
    before = dict(outer)
    with torch.no_grad():
        layer(x)
    assert outer == before
