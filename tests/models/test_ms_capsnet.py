import pytest
import torch

import clustercaps as cc
from clustercaps.models.peers.ms_capsnet import (
    RoutingOverChildren,
    Scales,
    drop_capsules,
    route_over_children,
)
from clustercaps.models.registry import count_parameters
from clustercaps.routing.squash import squash
from clustercaps.testing import assert_routing_contract

TINY = {"width": 6, "types": 2, "dim": 4, "num_classes": 3}


def test_parameter_counts() -> None:
    assert count_parameters("ms_capsnet") == 12_278_608
    assert count_parameters("ms_capsnet_28") == 12_169_552


def test_counts_of_the_scales() -> None:
    scales = Scales(256, 30)
    counts = [sum(p.numel() for p in s.parameters()) for s in (scales.low, scales.mid, scales.high)]
    assert counts == [2_488_440, 3_108_240, 2_404_680]


@pytest.mark.parametrize("side", [9, 10, 19, 20])
def test_three_depths_give_the_same_places(side: int) -> None:
    capsules = Scales(6, types=2)(torch.randn(2, 6, side, side))
    places = ((side - 9) // 2 + 1) ** 2
    assert [c.shape for c in capsules] == [(2, 2 * places, dim) for dim in (4, 8, 12)]


def test_six_by_six_places_of_thirty_types() -> None:
    model = cc.create_model("ms_capsnet", width=1)
    assert [votes.weight.shape[0] for votes in model.votes] == [1080] * 3


def test_types_have_stacks_of_their_own() -> None:
    scales = Scales(3, types=2).eval()
    maps = torch.randn(1, 3, 12, 12)
    before = scales(maps)
    with torch.no_grad():
        # The first convolutions of type 1: type 0, the first half of the capsules, stays.
        scales.mid[0].weight[16:] += 1
        scales.high[0].weight[32:] += 1
    for one, other in zip(before[1:], scales(maps)[1:], strict=True):
        half = one.shape[1] // 2
        torch.testing.assert_close(one[:, :half], other[:, :half])
        assert not one[:, half:].allclose(other[:, half:])


def test_capsule_dropout() -> None:
    votes = torch.randn(1, 4, 2, 3)
    assert drop_capsules(votes, 0.5, training=False) is votes
    assert drop_capsules(votes, 0.0) is votes
    many = drop_capsules(votes.expand(20_000, -1, -1, -1), 0.25)
    # Whole capsules, and on average nothing changes.
    gone = (many == 0).flatten(2)
    assert gone.all(2).equal(gone.any(2))
    assert gone.all(2).float().mean().item() == pytest.approx(0.25, abs=0.01)
    torch.testing.assert_close(many.mean(0), votes[0], rtol=0.03, atol=0.03)


def test_dropout_is_for_training_only() -> None:
    model = cc.create_model("ms_capsnet", **TINY, drop=0.5).eval()
    without = cc.create_model("ms_capsnet", **TINY, drop=0.0).eval()
    without.load_state_dict(model.state_dict())
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(model(images), without(images))
    assert not model.train()(images).allclose(without.train()(images))


def test_the_authors_routing() -> None:
    votes = torch.randn(2, 5, 3, 4, dtype=torch.float64)
    first = squash(votes.sum(1))
    coupling = torch.einsum("bijd,bjd->bij", votes, first).softmax(1)
    expected = squash(torch.einsum("bij,bijd->bjd", coupling, votes))
    torch.testing.assert_close(route_over_children(votes, 1).capsules, expected)
    routed = route_over_children(votes)
    torch.testing.assert_close(routed.coupling.sum(1), torch.ones(2, 3, dtype=torch.float64))
    model = cc.create_model("ms_capsnet", **TINY, routing_over="children", vote_std=0.5).eval()
    coupling = model.route(torch.rand(2, 3, 32, 32)).coupling
    torch.testing.assert_close(coupling.sum(1), torch.ones(2, 3))
    assert_routing_contract(lambda: RoutingOverChildren(6, 3, 4))


def test_gradcheck_of_the_authors_routing() -> None:
    votes = torch.randn(1, 3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: route_over_children(v)[:2], votes)


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match=r"9x9 convolution \(primary capsules\)"):
        cc.create_model("ms_capsnet", img_size=20)
    with pytest.raises(ValueError, match="did you mean 'children'"):
        cc.create_model("ms_capsnet", routing_over="child")
    with pytest.raises(ValueError, match=r"drop must be in \[0, 1\), got 1"):
        cc.create_model("ms_capsnet", drop=1.0)
