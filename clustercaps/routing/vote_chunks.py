"""Sums over votes, and the gradient with respect to the votes, one part of the votes at a time.

Reading and writing memory takes longer than the arithmetic, and new memory longer still. Every
function here reads the votes once, in parts that fit into the cache, with shared buffers.

Shapes: votes [B, I, J, D, *positions], tensors per pair of child and parent [B, I, J, *positions],
tensors per parent [B, J, D, *positions]; notation as in `clustercaps.routing.moments`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# Size of the buffers, in bytes.
CHUNK = 4 * 2**20

# Slices of images and children.
Place = tuple[slice, slice]


class Term(NamedTuple):
    """A part of the gradient with respect to the votes: a_i b_d, or a_i b_d (V_id - m_d).

    Attributes:
        pair: a, per pair of child and parent.
        parent: b, per parent.
        mean: m, per parent; None without the second factor.
        key: Terms with equal keys have the same mean.
    """

    pair: Tensor
    parent: Tensor
    mean: Tensor | None = None
    key: int = 0


def sum_children(votes: Tensor, pair: Tensor) -> Tensor:
    """sum_i a_i V_id, per parent."""
    frame = Frame(votes)
    total = frame.zeros_per_parent()
    for at, (room,), v, (a,) in frame.parts(1, frame.pair(pair)):
        total[at[0]] += torch.mul(v, a, out=room).sum(1)
    return frame.turn(total)


def mean_and_squares(
    votes: Tensor, pair: Tensor, scale: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """sum_i a_i V_id, the mean m = scale * sum + offset, and sum_i a_i (V_id - m_d)^2."""
    shape = (len(votes), *votes.shape[2:])
    every = votes, pair, scale.expand(shape), offset.expand(shape)
    size = max(1, CHUNK // max(1, votes[:1].numel() * votes.element_size()))
    found = []
    # A few images at a time: their votes are still in the cache when they are read again.
    for v, a, factor, plus in zip(*(tensor.split(size) for tensor in every), strict=True):
        total = sum_children(v, a)
        mean = factor * total + plus
        found.append((total, mean, squares_over_children(v, mean, a)))
    total, mean, squares = (torch.cat(parts) for parts in zip(*found, strict=True))
    return total, mean, squares


def sum_dims(votes: Tensor, parent: Tensor) -> Tensor:
    """sum_d b_d V_id, per pair."""
    frame = Frame(votes)
    total = frame.empty_per_pair()
    for at, (room,), v, (b,) in frame.parts(1, frame.parent(parent)):
        torch.sum(torch.mul(v, b, out=room), frame.dims, out=total[at])
    return total


def squares_over_children(votes: Tensor, mean: Tensor, pair: Tensor) -> Tensor:
    """sum_i a_i (V_id - m_d)^2, per parent."""
    frame = Frame(votes)
    total = frame.zeros_per_parent()
    tensors = frame.parent(mean), frame.pair(pair)
    for at, (off,), v, (m, a) in frame.parts(1, *tensors):
        torch.sub(v, m, out=off)
        total[at[0]] += off.mul_(off).mul_(a).sum(1)
    return frame.turn(total)


def squares_over_dims(votes: Tensor, mean: Tensor, parent: Tensor) -> Tensor:
    """sum_d b_d (V_id - m_d)^2, per pair."""
    frame = Frame(votes)
    total = frame.empty_per_pair()
    for at, (off,), v, (m, b) in frame.parts(1, frame.parent(mean), frame.parent(parent)):
        torch.sub(v, m, out=off)
        torch.sum(off.mul_(off).mul_(b), frame.dims, out=total[at])
    return total


def sum_and_squares_over_dims(votes: Tensor, mean: Tensor, parent: Tensor, outer: Tensor) -> Tensor:
    """sum_d (V_id - m_d) (b_d + c_d (V_id - m_d)), per pair."""
    frame = Frame(votes)
    total = frame.empty_per_pair()
    tensors = frame.parent(mean), frame.parent(parent), frame.parent(outer)
    for at, (off, room), v, (m, b, c) in frame.parts(2, *tensors):
        torch.sub(v, m, out=off)
        torch.addcmul(b, off, c, out=room)
        torch.sum(off.mul_(room), frame.dims, out=total[at])
    return total


def two_moments(votes: Tensor, mean: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
    """sum_i a_i (V_id - m_d) and sum_i a_i (V_id - m_d)^2, per parent."""
    frame = Frame(votes)
    first, second = frame.zeros_per_parent(), frame.zeros_per_parent()
    tensors = frame.parent(mean), frame.pair(pair)
    for at, (off, room), v, (m, a) in frame.parts(2, *tensors):
        torch.sub(v, m, out=off)
        first[at[0]] += torch.mul(off, a, out=room).sum(1)
        second[at[0]] += room.mul_(off).sum(1)
    return frame.turn(first), frame.turn(second)


def grouped(terms: Sequence[Term]) -> list[list[Term]]:
    """Terms with the same mean together, those without one last."""
    groups: dict[int | None, list[Term]] = {}
    for term in sorted(terms, key=lambda term: term.mean is None):
        groups.setdefault(None if term.mean is None else term.key, []).append(term)
    return list(groups.values())


def add_terms(votes: Tensor, terms: Sequence[Term]) -> Tensor:
    """The sum of all terms, of the votes' size."""
    frame, groups = Frame(votes), grouped(terms)
    result = torch.empty_like(frame.votes)
    tensors = [result]
    for group in groups:
        if group[0].mean is not None:
            tensors.append(frame.parent(group[0].mean))
        tensors += frame.factors(group)
    for _, (off, room), v, (out, *rest) in frame.parts(2, *tensors):
        left = iter(rest)
        for number, group in enumerate(groups):
            centred = group[0].mean is not None
            if centred:
                torch.sub(v, next(left), out=off)
            # The first group is written to its place.
            target = room if centred or number else out
            torch.mul(next(left), next(left), out=target)
            for _ in group[1:]:
                target.addcmul_(next(left), next(left))
            if centred and number:
                out.addcmul_(off, room)
            elif centred:
                torch.mul(off, room, out=out)
            elif number:
                out.add_(room)
    return result.movedim(2, 3) if frame.swapped else result


class Frame:
    """The votes with their axes in the order of memory, so that inner loops are long.

    Args:
        votes: The votes.
    """

    def __init__(self, votes: Tensor) -> None:
        # Votes of matrix capsules have the dimensions outside the parents.
        self.swapped = votes.stride(3) > votes.stride(2)
        self.votes = votes.movedim(3, 2) if self.swapped else votes
        # The axis of the dimensions.
        self.dims = 2 if self.swapped else 3

    def pair(self, values: Tensor) -> Tensor:
        """Values per pair, with an axis for the dimensions."""
        return values.contiguous().unsqueeze(self.dims)

    def parent(self, values: Tensor) -> Tensor:
        """Values per parent, with an axis for the children."""
        return self.turn(values).contiguous().unsqueeze(1)

    def factors(self, terms: Sequence[Term]) -> list[Tensor]:
        """Both factors of every term."""
        return [
            factor for term in terms for factor in (self.pair(term.pair), self.parent(term.parent))
        ]

    def turn(self, values: Tensor) -> Tensor:
        """Values per parent, from the order of arguments to that of memory or back."""
        return values.transpose(1, 2) if self.swapped else values

    def zeros_per_parent(self) -> Tensor:
        """Zeros per parent, in the order of memory."""
        return self.votes.new_zeros(self.votes.shape[0], *self.votes.shape[2:])

    def empty_per_pair(self) -> Tensor:
        """Memory for values per pair."""
        shape = self.votes.shape
        return self.votes.new_empty(*shape[: self.dims], *shape[self.dims + 1 :])

    def parts(
        self, buffers: int, *tensors: Tensor
    ) -> Iterator[tuple[Place, list[Tensor], Tensor, list[Tensor]]]:
        """For a few images and children at a time: where, buffers, their votes and tensors."""
        votes = self.votes
        images, children = votes.shape[:2]
        child = max(1, votes[:1, :1].numel() * votes.element_size() * buffers)
        rows, columns = max(1, CHUNK // (child * children)), min(children, max(1, CHUNK // child))
        rooms = [torch.empty_like(votes[:rows, :columns]) for _ in range(buffers)]
        for top in range(0, images, rows):
            for left in range(0, children, columns):
                at = slice(top, top + rows), slice(left, left + columns)
                part = votes[at]
                room = [each[: part.shape[0], : part.shape[1]] for each in rooms]
                yield at, room, part, [t[at] if t.shape[1] > 1 else t[at[0]] for t in tensors]
