"""Full precision inside autocast, for sums and factorisations that need it."""

import torch
from torch import Tensor


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself if it is float32 or wider, else float32."""
    return torch.promote_types(dtype, torch.float32)


def without_autocast(like: Tensor) -> torch.autocast:
    """Disable autocast on the device of a tensor, as a context."""
    kind = like.device.type
    # Tensors without data ("meta") have no autocast to disable.
    return torch.autocast("cpu" if kind == "meta" else kind, enabled=False)
