"""Whether code is being exported, traced or transformed, and must use plain operators only."""

import torch
from torch.autograd import forward_ad


def plain_only() -> bool:
    """Whether custom operators must be avoided.

    Exported programs must run without this package, and its operators have no rules for torch.func
    or forward-mode differentiation.
    """
    return (
        torch.compiler.is_exporting()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )
