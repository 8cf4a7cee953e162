"""Sums over votes by the compiled kernel: the functions of `clustercaps.routing.vote_chunks`.

Every function reads the votes once and needs no buffer. See vote_sums.h.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from clustercaps.kernels.library import NAMES, load
from clustercaps.routing.vote_chunks import Frame, Term, grouped

SIZES = ("batch", "children", "parents", "dim", "positions")
POINTER, COUNT = ctypes.c_void_p, ctypes.c_int64
# Arguments of the entry points in cluster_cpu.cpp, after the sizes and the votes.
ARGUMENTS: dict[str, list[Any]] = {
    "sum_children": [POINTER] * 4,
    "sum_dims": [POINTER] * 4,
    "add_terms": [COUNT, *[POINTER] * 5],
}


class VoteSizes(ctypes.Structure):
    """Sizes of votes, matching `VoteSizes` in vote_sums.h."""

    _fields_ = [(name, ctypes.c_int64) for name in SIZES]


def can_sum(votes: Tensor) -> bool:
    """Whether the kernel can sum these votes: in one piece, on the CPU, and not a stand-in.

    Without positions, PyTorch is as fast.
    """
    return (
        type(votes) is Tensor
        and votes.device.type == "cpu"
        and votes.dtype in NAMES
        and votes.shape[4:].numel() > 1
        and votes.numel() > 0
        and Frame(votes).votes.is_contiguous()
    )


def sum_children(votes: Tensor, pair: Tensor) -> Tensor:
    """sum_i a_i V_id, per parent."""
    return _over_children(votes, pair, None, True, False)[0]


def mean_and_squares(
    votes: Tensor, pair: Tensor, scale: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """sum_i a_i V_id, the mean m = scale * sum + offset, and sum_i a_i (V_id - m_d)^2."""
    total = sum_children(votes, pair)
    mean = scale * total + offset
    return total, mean, _over_children(votes, pair, mean, False, True)[1]


def two_moments(votes: Tensor, mean: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
    """sum_i a_i (V_id - m_d) and sum_i a_i (V_id - m_d)^2, per parent."""
    return _over_children(votes, pair, mean, True, True)


def sum_dims(votes: Tensor, parent: Tensor) -> Tensor:
    """sum_d b_d V_id, per pair."""
    return _over_dims(votes, None, parent, None)


def squares_over_dims(votes: Tensor, mean: Tensor, parent: Tensor) -> Tensor:
    """sum_d b_d (V_id - m_d)^2, per pair."""
    return _over_dims(votes, mean, None, parent)


def sum_and_squares_over_dims(votes: Tensor, mean: Tensor, parent: Tensor, outer: Tensor) -> Tensor:
    """sum_d (V_id - m_d) (b_d + c_d (V_id - m_d)), per pair."""
    return _over_dims(votes, mean, parent, outer)


def add_terms(votes: Tensor, terms: Sequence[Term]) -> Tensor:
    """The sum of all terms, of the votes' size."""
    frame, groups = Frame(votes), grouped(terms)
    result = torch.empty_like(frame.votes)
    ordered = [term for group in groups for term in group]
    tensors = (
        [_per_parent(frame, group[0].mean) for group in groups],
        [_per_pair(frame, term.pair) for term in ordered],
        [_per_parent(frame, term.parent) for term in ordered],
    )
    counts = (COUNT * len(groups))(*map(len, groups))
    arrays = [(POINTER * len(each))(*map(_address, each)) for each in tensors]
    _call("add_terms", frame, len(groups), counts, *arrays, _address(result))
    return result.movedim(2, 3) if frame.swapped else result


def _over_children(
    votes: Tensor, pair: Tensor, mean: Tensor | None, first: bool, second: bool
) -> tuple[Tensor, Tensor]:
    """sum_i a_i (V_id - m_d) and sum_i a_i (V_id - m_d)^2; empty if not needed."""
    frame = Frame(votes)
    sums, squares = (frame.zeros_per_parent() if needed else None for needed in (first, second))
    given = _per_pair(frame, pair), _per_parent(frame, mean)
    _call("sum_children", frame, *map(_address, (*given, sums, squares)))
    empty = votes.new_empty(0)
    return (
        empty if sums is None else frame.turn(sums),
        empty if squares is None else frame.turn(squares),
    )


def _over_dims(
    votes: Tensor, mean: Tensor | None, linear: Tensor | None, quadratic: Tensor | None
) -> Tensor:
    """sum_d (V_id - m_d) (b_d + c_d (V_id - m_d)), per pair."""
    frame = Frame(votes)
    total = frame.empty_per_pair()
    given = [_per_parent(frame, each) for each in (mean, linear, quadratic)]
    _call("sum_dims", frame, *map(_address, (*given, total)))
    return total


def _per_pair(frame: Frame, values: Tensor) -> Tensor:
    found = frame.pair(values)
    wanted = list(frame.votes.shape)
    wanted[frame.dims] = 1
    # The kernel would read beyond the end of a smaller tensor.
    assert list(found.shape) == wanted
    assert found.dtype == frame.votes.dtype
    return found


def _per_parent(frame: Frame, values: Tensor | None) -> Tensor | None:
    if values is None:
        return None
    found = frame.parent(values)
    shape = frame.votes.shape
    assert found.shape == (shape[0], 1, *shape[2:])
    assert found.dtype == frame.votes.dtype
    return found


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _call(name: str, frame: Frame, *arguments: Any) -> None:
    votes = frame.votes
    outer = 2 if frame.swapped else 3
    # With the dimensions outside the parents, these count as positions.
    parents = 1 if frame.swapped else votes.shape[2]
    positions = votes.shape[outer + 1 :].numel()
    sizes = VoteSizes(*votes.shape[:2], parents, votes.shape[outer], positions)
    if _entry(name, votes.dtype)(ctypes.byref(sizes), votes.data_ptr(), *arguments):
        raise MemoryError("the sums over votes could not allocate memory")


@cache
def _entry(name: str, dtype: torch.dtype) -> Any:
    entry = load().entry(name, dtype)
    entry.restype = ctypes.c_int
    entry.argtypes = [ctypes.POINTER(VoteSizes), POINTER, *ARGUMENTS[name]]
    return entry
