"""Votes a few images at a time, in memory that all of them share.

A training step that allocates a tensor as large as the votes in every operation spends most of its
time on page faults and on waiting for memory. What is computed image by image in one small tensor
stays in the cache.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from clustercaps.utils.tracing import plain_only

# Votes worked on at a time, in bytes.
CHUNK = 4 * 2**20


def chunk_size(votes: Tensor) -> int:
    """Number of images to work on at a time."""
    return max(1, CHUNK // max(1, votes[:1].numel() * votes.element_size()))


def chunks(votes: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Memory for the votes of some images, and these images of every tensor."""
    size = chunk_size(votes)
    room = torch.empty_like(votes[:size])
    for parts in zip(*(tensor.split(size) for tensor in tensors), strict=True):
        yield room[: len(parts[0])], *parts


def prefers_plain(votes: Tensor) -> bool:
    """Whether to use the plain formulas: compilers fuse them, and a GPU gains nothing by chunks."""
    return torch.compiler.is_compiling() or plain_only() or votes.device.type != "cpu"
