"""Whether a module may be bypassed: its parameters used without calling its forward method."""

from torch import nn
from torch.nn.modules import module as calls
from torch.nn.utils.parametrize import type_before_parametrizations


def may_bypass(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether calling `module` is equivalent to `kind.forward` with its parameters.

    It is not if the module is of a subclass, if its `forward` was replaced, or if a hook, local or
    global, is registered for the call: capture hooks, `torch.nn.utils.prune`, the older versions of
    `weight_norm` and `spectral_norm`. Parametrisations are fine: they act when a parameter is read.
    """
    known = type(module) is kind or type_before_parametrizations(module) is kind
    if not known or "forward" in module.__dict__:
        return False
    return not (has_hooks(module) or has_global_hooks())


def has_hooks(module: nn.Module) -> bool:
    """Whether a hook was registered on this module for its calls."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


def has_global_hooks() -> bool:
    """Whether a hook was registered for the calls of all modules."""
    # The other tables of hooks only say more about those in these.
    return bool(
        calls._global_forward_hooks
        or calls._global_forward_pre_hooks
        or calls._global_backward_hooks
        or calls._global_backward_pre_hooks
    )
