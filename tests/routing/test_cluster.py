import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.reference import fill
from helpers.reference import route as route_by_loops
from hypothesis import given, settings
from hypothesis import strategies as st

import clustercaps as cc
from clustercaps.functional import cluster_route, routing_weights, vote_statistics
from clustercaps.routing import ClusterRouting, get_routing

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/cluster.json").read_text())


def votes_of(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1))


def test_golden_values() -> None:
    golden = GOLDEN["cluster_votes"]
    votes = torch.from_numpy(fill((2, 3, 2), 0.7, 0.1)).unsqueeze(0)
    capsules, weights = cluster_route(votes, eps=0.0)
    centroids, spread = vote_statistics(votes, eps=0.0)
    for ours, name in [(centroids, "mean"), (spread, "std"), (weights, "c"), (capsules, "s")]:
        torch.testing.assert_close(
            ours[0], torch.tensor(golden[name], dtype=torch.float64), rtol=0, atol=2e-9
        )


@given(
    shape=st.tuples(
        st.integers(0, 3),
        st.integers(1, 5),
        st.integers(1, 6),
        st.integers(1, 3),
        st.integers(1, 3),
    ),
    seed=st.integers(0, 2**31),
    routing=st.sampled_from(["cluster", "uniform"]),
)
@settings(max_examples=60, deadline=None)
def test_equals_the_loops(shape: tuple[int, ...], seed: int, routing: str) -> None:
    votes = np.random.default_rng(seed).normal(size=shape)
    capsules, weights = cluster_route(torch.from_numpy(votes), routing=routing, eps=1e-6)
    expected, expected_weights = route_by_loops(votes, 1e-6, uniform=routing == "uniform")
    np.testing.assert_allclose(capsules, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("routing", ["cluster", "uniform"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 2), (1, 2, 1, 3), (1, 1, 5, 2), (2, 3, 2)])
def test_gradcheck(routing: str, shape: tuple[int, ...]) -> None:
    votes = votes_of(*shape).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: cluster_route(v, routing=routing), votes)


def test_gradient_is_the_closed_form() -> None:
    votes = votes_of(2, 3, 4, 2, 5).requires_grad_()
    capsules, weights = cluster_route(votes, eps=1e-6)
    upstream = torch.randn_like(capsules)
    (gradient,) = torch.autograd.grad(capsules, votes, upstream)
    centroids, spread = vote_statistics(votes, 1e-6)
    pull = (centroids - capsules.unsqueeze(1)) / spread.square()
    expected = (upstream.unsqueeze(1) * weights / 4).unsqueeze(2) * (
        1 - pull.unsqueeze(2) * (votes - centroids.unsqueeze(2))
    )
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("routing", ["cluster", "uniform"])
def test_weights_are_positive_and_sum_to_one(routing: str) -> None:
    _, weights = cluster_route(votes_of(3, 5, 4, 2, 6), routing=routing)
    assert (weights > 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones_like(weights[:, 0]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("routing", ["cluster", "uniform"])
def test_order_changes_nothing(routing: str) -> None:
    votes = votes_of(3, 5, 4, 2, 6)
    capsules, weights = cluster_route(votes, routing=routing)
    flipped, flipped_weights = cluster_route(votes.flip(1), routing=routing)
    torch.testing.assert_close(flipped, capsules)
    torch.testing.assert_close(flipped_weights, weights.flip(1))
    torch.testing.assert_close(cluster_route(votes.flip(2), routing=routing)[0], capsules)


def test_module_equals_function() -> None:
    votes = votes_of(2, 12, 3, 5, 2, 2)
    routed = ClusterRouting(12, 3, 5, votes_per_cluster=4)(votes)
    capsules, weights = cluster_route(votes.unflatten(1, (3, 4)))
    torch.testing.assert_close(routed.capsules, capsules)
    torch.testing.assert_close(routed.coupling[:, ::4] * 4, weights)
    # What the coupling means: capsules are the votes, weighted by it.
    torch.testing.assert_close((routed.coupling * votes).sum(1), capsules)
    with pytest.raises(ValueError, match="cannot be divided into clusters of 5"):
        ClusterRouting(12, 3, 5, votes_per_cluster=5)


def test_scaling_the_votes_keeps_the_weights() -> None:
    votes = votes_of(3, 5, 4, 2, 6)
    expected, scaled = (cluster_route(v, eps=0.0)[1] for v in (votes, 7.5 * votes))
    torch.testing.assert_close(scaled, expected, rtol=1e-13, atol=1e-13)


def test_widening_a_cluster_lowers_its_weight() -> None:
    votes = votes_of(3, 5, 4, 2, 6)
    centroids, _ = vote_statistics(votes)
    wider = votes.clone()
    wider[:, 2] = centroids[:, 2, None] + 1.5 * (votes[:, 2] - centroids[:, 2, None])
    before, after = cluster_route(votes)[1], cluster_route(wider)[1]
    assert (after[:, 2] < before[:, 2]).all()
    others = [0, 1, 3, 4]
    assert (after[:, others] > before[:, others]).all()


def test_a_tighter_cluster_wins() -> None:
    votes = torch.zeros(1, 2, 2, dtype=torch.float64)
    votes[0, 0] = torch.tensor([0.9, 1.1])
    votes[0, 1] = torch.tensor([-2.0, 0.0])
    capsules, weights = cluster_route(votes, eps=0.0)
    # Standard deviations 0.1 and 1: weights 10 to 1.
    torch.testing.assert_close(weights[0], torch.tensor([10 / 11, 1 / 11], dtype=torch.float64))
    assert capsules.item() == pytest.approx(10 / 11 * 1 + 1 / 11 * -1)


def test_single_votes_are_averaged() -> None:
    votes = votes_of(2, 3, 1, 4)
    capsules, weights = cluster_route(votes)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 3))
    torch.testing.assert_close(capsules, votes.mean((1, 2)))


def test_half_precision_has_statistics_in_float32() -> None:
    votes = votes_of(2, 3, 4, 5).to(torch.bfloat16)
    capsules, weights = cluster_route(votes)
    assert capsules.dtype == torch.bfloat16
    assert weights.dtype == torch.float32
    expected, expected_weights = cluster_route(votes.float())
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(capsules, expected.to(torch.bfloat16))


@pytest.mark.parametrize("shape", [(2, 3), (2, 0, 4, 5), (2, 3, 0, 5)])
def test_bad_shapes_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, TypeError), match=r"votes"):
        cluster_route(torch.zeros(shape))


def test_unknown_names_get_a_guess() -> None:
    with pytest.raises(KeyError, match="did you mean 'uniform'"):
        routing_weights(torch.ones(1, 2, 3), "unifrom")
    with pytest.raises(KeyError, match="did you mean 'cluster'"):
        get_routing("clusters")
    assert {"cluster", "uniform"} <= set(cc.list_routings())
