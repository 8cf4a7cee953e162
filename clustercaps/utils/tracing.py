"""Whether code is being exported, traced or transformed, and must use plain operators only."""

import torch


def plain_only() -> bool:
    """Exported programs must run without this package; torch.func has no rule for its shortcuts."""
    return (
        torch.compiler.is_exporting()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
    )
