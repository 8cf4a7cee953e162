"""Who computes the sums over votes: plain PyTorch, or the compiled kernel if there is one."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from clustercaps.routing import vote_chunks
from clustercaps.routing.vote_chunks import Term


@runtime_checkable
class VoteSums(Protocol):
    """The functions of `clustercaps.routing.vote_chunks`, which explains them."""

    def sum_children(self, votes: Tensor, pair: Tensor) -> Tensor:
        """sum_i a_i V_id, per parent."""
        ...

    def mean_and_squares(
        self, votes: Tensor, pair: Tensor, scale: Tensor, offset: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The sum, a mean that it defines, and squares around it."""
        ...

    def two_moments(self, votes: Tensor, mean: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """sum_i a_i (V_id - m_d) and sum_i a_i (V_id - m_d)^2, per parent."""
        ...

    def sum_dims(self, votes: Tensor, parent: Tensor) -> Tensor:
        """sum_d b_d V_id, per pair."""
        ...

    def squares_over_dims(self, votes: Tensor, mean: Tensor, parent: Tensor) -> Tensor:
        """sum_d b_d (V_id - m_d)^2, per pair."""
        ...

    def sum_and_squares_over_dims(
        self, votes: Tensor, mean: Tensor, parent: Tensor, outer: Tensor
    ) -> Tensor:
        """sum_d (V_id - m_d) (b_d + c_d (V_id - m_d)), per pair."""
        ...

    def add_terms(self, votes: Tensor, terms: Sequence[Term]) -> Tensor:
        """The sum of all terms, of the votes' size."""
        ...


Choice = Callable[[Tensor], VoteSums | None]
_choices: list[Choice] = []


def offer(choice: Choice) -> None:
    """Let a faster implementation compute the sums of votes for which `choice` returns it.

    `clustercaps.kernels` calls this: it imports the routings, so they cannot import it.
    """
    _choices.append(choice)


def sums_of(votes: Tensor) -> VoteSums:
    """The fastest implementation for these votes."""
    for choice in _choices:
        found = choice(votes)
        if found is not None:
            return found
    return vote_chunks
