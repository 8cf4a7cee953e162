"""The sums over votes of the compiled kernel, against plain formulas and against PyTorch."""

import pytest
import torch
from torch import Tensor

from clustercaps.kernels import vote_sums
from clustercaps.models import create_model
from clustercaps.routing import vote_chunks
from clustercaps.routing.vote_chunks import Term
from clustercaps.routing.vote_sums import VoteSums, sums_of

BATCH, PARENTS = 2, 3
# Children, dimension and positions: vectors and what is left of them, strips and parts of them.
SIZES = [
    (1, 1, (2,)),
    (40, 5, (1, 3)),
    (17, 600, (4,)),
    (4, 16, (4, 4)),
    (20, 4, (2, 3)),
    (5, 3, (7, 7)),
    (3, 2, (30, 20)),
]


def draw(children: int, dim: int, positions: tuple[int, ...], outer: bool) -> list[Tensor]:
    """Votes, values per pair and three tensors of values per parent, in float64."""
    dice = torch.Generator().manual_seed(children * dim)

    def some(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice, dtype=torch.float64)

    if outer:
        votes = some(BATCH, children, dim, PARENTS, *positions).movedim(2, 3)
    else:
        votes = some(BATCH, children, PARENTS, dim, *positions)
    parent = (BATCH, PARENTS, dim, *positions)
    return [votes, some(BATCH, children, PARENTS, *positions), *(some(*parent) for _ in range(3))]


def terms_of(pair: Tensor, mean: Tensor, first: Tensor, second: Tensor) -> list[Term]:
    return [
        Term(pair, first),
        Term(pair, second, mean, 1),
        Term(pair.square(), first, mean, 1),
        Term(pair, first, second, 2),
        Term(pair.square(), second),
    ]


def computed(sums: VoteSums, given: list[Tensor]) -> dict[str, Tensor]:
    """The results of all functions."""
    votes, pair, mean, first, second = given
    total, centre, squares = sums.mean_and_squares(votes, pair, first, mean)
    offset, spread = sums.two_moments(votes, mean, pair)
    return {
        "sum_children": sums.sum_children(votes, pair),
        **{"total": total, "mean": centre, "squares": squares},
        **{"offset": offset, "spread": spread},
        "sum_dims": sums.sum_dims(votes, first),
        "squares_over_dims": sums.squares_over_dims(votes, mean, first),
        "both_over_dims": sums.sum_and_squares_over_dims(votes, mean, first, second),
        "add_terms": sums.add_terms(votes, terms_of(pair, mean, first, second)),
        "one_term": sums.add_terms(votes, [Term(pair, first)]),
    }


def formulas(given: list[Tensor]) -> dict[str, Tensor]:
    """The same, as it is defined."""
    votes, pair, mean, first, second = given
    a, m, b, c = pair.unsqueeze(3), mean.unsqueeze(1), first.unsqueeze(1), second.unsqueeze(1)
    total, off = (a * votes).sum(1), votes - m
    centre = first * total + mean
    return {
        "sum_children": total,
        **{"total": total, "mean": centre},
        "squares": (a * (votes - centre.unsqueeze(1)).square()).sum(1),
        **{"offset": (a * off).sum(1), "spread": (a * off.square()).sum(1)},
        "sum_dims": (b * votes).sum(3),
        "squares_over_dims": (b * off.square()).sum(3),
        "both_over_dims": (off * (b + c * off)).sum(3),
        "add_terms": a * b + a * c * off + a * a * b * off + a * b * (votes - c) + a * a * c,
        "one_term": (a * b).expand_as(votes),
    }


@pytest.mark.parametrize("outer", [False, True], ids=["dims-inside", "dims-outside"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_matches_the_formulas(sizes: tuple[int, int, tuple[int, ...]], outer: bool) -> None:
    given = draw(*sizes, outer)
    assert vote_sums.can_sum(given[0])
    right = formulas(given)
    for name, value in computed(vote_sums, given).items():
        assert torch.allclose(value, right[name], rtol=1e-9, atol=1e-10), name
    # In float32, no further from the truth than PyTorch.
    short = [tensor.float() for tensor in given]
    ours, theirs = computed(vote_sums, short), computed(vote_chunks, short)
    for name, value in right.items():
        errors = [(each[name].double() - value).norm() for each in (ours, theirs)]
        assert errors[0] <= 2 * errors[1] + 1e-7 * value.norm(), name


def test_reads_only_votes_in_one_piece_on_the_cpu() -> None:
    votes = torch.randn(2, 3, 4, 5, 6)
    assert vote_sums.can_sum(votes)
    for other in (votes[..., 0], votes[..., ::2], votes.half(), votes[:0], votes.to("meta")):
        assert not vote_sums.can_sum(other)
        assert sums_of(other) is vote_chunks
    with torch._subclasses.FakeTensorMode() as fake:
        assert not vote_sums.can_sum(fake.from_tensor(votes))


def test_follows_the_chosen_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    votes = torch.randn(2, 3, 4, 5, 6)
    monkeypatch.setenv("CLUSTERCAPS_BACKEND", "cpu")
    assert sums_of(votes) is vote_sums
    for backend in ("reference", "chunked"):
        monkeypatch.setenv("CLUSTERCAPS_BACKEND", backend)
        assert sums_of(votes) is vote_chunks


def test_wrong_shapes_do_not_reach_the_kernel() -> None:
    votes, pair = torch.randn(2, 3, 4, 5, 6), torch.rand(1, 3, 4, 6)
    with pytest.raises(AssertionError):
        vote_sums.sum_children(votes, pair)
    with pytest.raises(AssertionError):
        vote_sums.sum_dims(votes, torch.rand(2, 4, 5, 6, dtype=torch.float64))


@pytest.mark.parametrize("model", ["em_small", "vb_small"])
def test_networks_compute_the_same(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = create_model(model, img_size=20, types=[2, 3, 3]).double()
    images = torch.rand(2, 2, 20, 20, dtype=torch.float64)
    outcomes = []
    for backend in ("cpu", "chunked"):
        monkeypatch.setenv("CLUSTERCAPS_BACKEND", backend)
        scores = network(images)
        outcomes.append([scores, *torch.autograd.grad(scores.sum(), list(network.parameters()))])
    for actual, expected in zip(*outcomes, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)
