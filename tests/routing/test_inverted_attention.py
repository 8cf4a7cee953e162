import pytest
import torch
from helpers.golden import ATTENTION, assert_golden, fill

from clustercaps.functional import inverted_attention_route
from clustercaps.layers.inverted import InvertedCapsules
from clustercaps.routing import create_routing
from clustercaps.routing.inverted_attention import norm_capsules

GOLDEN = ATTENTION["inverted_fc"]


def lifted(poses: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Votes of 2x2 matrix poses [I, 4] by matrices [child, x, d, parent], the pose on the left."""
    return torch.einsum("nax,nxdm->nmad", poses.unflatten(1, (2, 2)), weight).flatten(2)[None]


CHILDREN = norm_capsules(fill(1, 3, 4, step=0.61, start=0.05))[0]
VOTES = lifted(CHILDREN, fill(3, 2, 2, 2, step=0.37, start=0.2))
UPPER = fill(2, 2, 2, 2, step=0.53, start=0.4)


def random_votes(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_golden_values() -> None:
    first = inverted_attention_route(VOTES)
    assert_golden(first.capsules[0], GOLDEN["iter1"])
    torch.testing.assert_close(first.coupling, torch.full_like(first.coupling, 0.5))
    for iterations in (2, 3):
        routed = inverted_attention_route(VOTES, iterations=iterations)
        assert_golden(routed.coupling[0], GOLDEN[f"iter{iterations}_r"])
        assert_golden(routed.capsules[0], GOLDEN[f"iter{iterations}"])
    # A second iteration is one iteration that asks with the capsules of the first.
    asked = inverted_attention_route(VOTES, first.capsules)
    assert_golden(asked.capsules[0], GOLDEN["iter2"])


def test_golden_values_of_two_layers() -> None:
    low = [inverted_attention_route(VOTES, iterations=t).capsules for t in (1, 2)]
    # Concurrent: the second pass of the upper layer reads both layers' first pass.
    votes = lifted(low[0][0], UPPER)
    top = inverted_attention_route(votes).capsules
    concurrent = inverted_attention_route(votes, top).capsules
    assert_golden(concurrent[0], GOLDEN["two_layers_concurrent_T2"])
    sequential = inverted_attention_route(lifted(low[1][0], UPPER), iterations=2).capsules
    assert_golden(sequential[0], GOLDEN["two_layers_sequential_T2"])
    with pytest.raises(AssertionError):
        assert_golden(concurrent[0], GOLDEN["two_layers_sequential_T2"])


def test_golden_values_of_two_layers_as_modules() -> None:
    low, top = InvertedCapsules(3, 4, 2, 4).double(), InvertedCapsules(2, 4, 2, 4).double()
    with torch.no_grad():
        # Golden axes (child, x, d, parent) to ours (window, window, child, x, parent, d).
        low.weight.copy_(fill(3, 2, 2, 2, step=0.37, start=0.2).transpose(2, 3)[None, None])
        top.weight.copy_(UPPER.transpose(2, 3)[None, None])
    children = CHILDREN[None, :, :, None, None]
    once = low(children)
    assert_golden(top(once, top(once))[0, ..., 0, 0], GOLDEN["two_layers_concurrent_T2"])
    twice = top(low(children, iterations=2), iterations=2)
    assert_golden(twice[0, ..., 0, 0], GOLDEN["two_layers_sequential_T2"])


def test_golden_values_of_vector_poses() -> None:
    golden = ATTENTION["inverted_fc_vector"]
    weight = fill(3, 4, 2, 4, step=0.21, start=0.3)
    votes = torch.einsum("na,namd->nmd", CHILDREN, weight)[None]
    assert_golden(inverted_attention_route(votes).capsules[0], golden["iter1"])
    second = inverted_attention_route(votes, iterations=2)
    assert_golden(second.coupling[0], golden["iter2_r"])
    assert_golden(second.capsules[0], golden["iter2"])


def test_the_pose_stands_on_the_left() -> None:
    weight = fill(3, 2, 2, 2, step=0.37, start=0.2)
    matrices = CHILDREN.unflatten(1, (2, 2))
    wrong = torch.einsum("nxa,ndxm->nmda", matrices, weight).flatten(2)[None]
    with pytest.raises(AssertionError):
        assert_golden(inverted_attention_route(wrong).capsules[0], GOLDEN["iter1"])


def test_softmax_over_children_is_not_what_we_do() -> None:
    first = inverted_attention_route(VOTES).capsules
    wrong = (torch.einsum("bijd,bjd->bij", VOTES, first) / 2).softmax(1)
    with pytest.raises(AssertionError):
        assert_golden(wrong[0], GOLDEN["iter2_r"])


def test_one_iteration_asks_nobody() -> None:
    votes = random_votes(2, 6, 3, 4)
    module = create_routing("inverted_attention", 6, 3, 4, iterations=1).double()
    routed = module(votes)
    torch.testing.assert_close(routed.coupling, torch.full_like(routed.coupling, 1 / 3))
    torch.testing.assert_close(routed.capsules, norm_capsules(votes.mean(1) * 2))


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_one_parent_takes_all(iterations: int) -> None:
    votes = random_votes(2, 6, 1, 4, 3)
    capsules = inverted_attention_route(votes, iterations=iterations).capsules
    torch.testing.assert_close(capsules, norm_capsules(votes.sum(1)))
    query = random_votes(2, 1, 4, 3)
    torch.testing.assert_close(inverted_attention_route(votes, query).capsules, capsules)


def test_scaled_votes_only_sharpen_the_couplings() -> None:
    votes = random_votes(2, 6, 3, 4)
    for ours, scaled in zip(
        inverted_attention_route(votes, eps=0.0)[::2],
        inverted_attention_route(5 * votes, eps=0.0)[::2],
        strict=True,
    ):
        torch.testing.assert_close(scaled, ours)
    query = inverted_attention_route(votes, eps=0.0).capsules
    mild, sharp = (inverted_attention_route(v, query).coupling for v in (votes, 5 * votes))
    assert (sharp.max(2).values > mild.max(2).values).all()


def test_norm_is_layer_norm() -> None:
    capsules, weight, bias = random_votes(2, 3, 4, 5), random_votes(4), random_votes(4)
    expected = torch.nn.functional.layer_norm(capsules.movedim(2, -1), (4,), weight, bias)
    torch.testing.assert_close(norm_capsules(capsules, weight, bias), expected.movedim(-1, 2))


def test_capsules_of_one_number_have_no_norm() -> None:
    votes = random_votes(2, 6, 3, 1)
    torch.testing.assert_close(inverted_attention_route(votes).capsules, votes.mean(1) * 2)
    assert not list(create_routing("inverted_attention", 6, 3, 1).parameters())


def test_gradcheck() -> None:
    votes = random_votes(1, 3, 2, 3, 2).requires_grad_()
    weight, bias = (random_votes(3).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(
        lambda v, w, b: inverted_attention_route(v, iterations=3, weight=w, bias=b).capsules,
        (votes, weight, bias),
    )
    query = random_votes(1, 2, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda v, q: inverted_attention_route(v, q)[0], (votes, query))


def test_iterations_must_be_positive() -> None:
    with pytest.raises(ValueError, match="iterations must be an integer of at least 1, got 0"):
        create_routing("inverted_attention", 2, 2, 2, iterations=0)
