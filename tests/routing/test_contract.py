"""What holds for every registered routing."""

import pytest
import torch

from clustercaps.routing import ROUTINGS, Routing, create_routing
from clustercaps.testing import assert_routing_contract, draw_input

# What a routing needs beyond children, parents and dim.
OPTIONS = {
    "cluster": {"votes_per_cluster": 2},
    "self_routing": {"in_dim": 3},
    "uniform": {"votes_per_cluster": 2},
}


def build(name: str, children: int = 6, parents: int = 3, dim: int = 4) -> Routing:
    return create_routing(name, children, parents, dim, **OPTIONS.get(name, {}))


@pytest.mark.parametrize("name", ROUTINGS)
def test_contract(name: str) -> None:
    assert_routing_contract(lambda: build(name))
    # A single parent, and a capsule of one number.
    assert_routing_contract(lambda: build(name, children=2, parents=1))
    assert_routing_contract(lambda: build(name, children=2, parents=2, dim=1))
    if "votes_per_cluster" not in OPTIONS.get(name, {}):
        assert_routing_contract(lambda: build(name, children=1))


@pytest.mark.parametrize("name", ROUTINGS)
def test_half_precision_routes_in_float32(name: str) -> None:
    routing = build(name).eval()
    inputs = draw_input(routing, dtype=torch.bfloat16)
    routed = routing(**inputs)
    assert routed.capsules.dtype == torch.bfloat16
    assert routed.coupling.dtype == torch.float32
    exact = routing(**{k: v.float() for k, v in inputs.items()})
    torch.testing.assert_close(routed.coupling, exact.coupling)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = routing(**{k: v.float() for k, v in inputs.items()})
    torch.testing.assert_close(mixed.capsules, exact.capsules)


@pytest.mark.parametrize("name", ROUTINGS)
def test_bad_votes_are_named(name: str) -> None:
    routing = build(name)
    inputs = draw_input(routing)
    with pytest.raises(ValueError, match=r"expects votes \[batch, 6, 3, 4, \*positions\]"):
        routing(**{name: value[:, :5] for name, value in inputs.items()})
    with pytest.raises((ValueError, TypeError), match="votes"):
        routing(**{**inputs, "votes": inputs["votes"].long()})
    if not routing.takes_activations:
        with pytest.raises(ValueError, match="no activations"):
            routing(**inputs, activations=torch.ones(2, 6))
    if not routing.takes_poses:
        with pytest.raises(ValueError, match="takes no poses"):
            routing(**inputs, poses=torch.ones(2, 6, 3))
