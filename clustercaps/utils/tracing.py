"""Whether code is being exported, traced or transformed, and must use plain operators only."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.autograd import forward_ad

# Whether programs that are being exported may contain operators of this package.
_keeps_operators = False


@contextmanager
def keeping_operators() -> Iterator[None]:
    """Let exported programs contain operators of this package, which they then need to run."""
    global _keeps_operators
    before, _keeps_operators = _keeps_operators, True
    try:
        yield
    finally:
        _keeps_operators = before


def plain_only() -> bool:
    """Whether custom operators must be avoided.

    Exported programs must run without this package, unless `keeping_operators` says otherwise, and
    its operators have no rules for torch.func or forward-mode differentiation.
    """
    return (
        (torch.compiler.is_exporting() and not _keeps_operators)
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )
