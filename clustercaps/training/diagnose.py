"""Find where values became non-finite."""

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from clustercaps.layers.cluster import CapsuleConv2d


@torch.no_grad()
def first_not_finite(model: nn.Module, batches: list[Tensor]) -> str:
    """The first parameter, else the first layer output, with NaN or infinity for these images."""
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights of {name}"
    found: list[str] = []
    hooks: list[RemovableHandle] = []

    def watch(name: str, module: nn.Module) -> None:
        def look(_: nn.Module, __: object, output: object) -> None:
            if isinstance(output, Tensor) and not output.isfinite().all():
                found.append(f"the output of {name} ({type(module).__name__})")

        hooks.append(module.register_forward_hook(look))

    layers = [module for module in model.modules() if isinstance(module, CapsuleConv2d)]
    # Their parts are left alone: a layer that is listened to inside takes another path.
    parts = {part for layer in layers for part in layer.modules() if part is not layer}
    for name, module in model.named_modules():
        if module in layers or not (list(module.children()) or module in parts):
            watch(name, module)
    try:
        for images in batches:
            if not images.isfinite().all():
                return "the images"
            model(images)
            if found:
                return found[0]
    finally:
        for hook in hooks:
            hook.remove()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return f"the gradient of {name}"
    return "the loss itself"
