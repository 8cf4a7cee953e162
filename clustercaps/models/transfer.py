"""Weights of a trained network in one with other classes or other colour channels."""

import torch
from jaxtyping import Float
from torch import Tensor

from clustercaps.models.base import ImageClassifier


def head_names(model: ImageClassifier) -> set[str]:
    """Names of all weights of the modules that depend on the number of classes."""
    with torch.device("meta"):
        other = type(model)(**{**model.settings, "num_classes": model.num_classes + 1})
    shapes = {name: tensor.shape for name, tensor in other.state_dict().items()}
    own = model.state_dict()
    owners = {_owner(name) for name, tensor in own.items() if tensor.shape != shapes.get(name)}
    return {name for name in own if _owner(name) in owners}


def with_in_chans(model: ImageClassifier, in_chans: int) -> ImageClassifier:
    """A network for another number of colour channels, with the same weights.

    The kernels that read the image are summed over its channels and spread evenly over the new
    ones: a grey image, repeated in every channel, gives the same output before and after. The
    preprocessing is dropped, since it was for other images.
    """
    like = next(model.parameters())
    changed = type(model)(**{**model.settings, "in_chans": in_chans})
    wanted = changed.state_dict()
    kept = dict(model.state_dict())
    for name, tensor in kept.items():
        if tensor.shape == wanted[name].shape:
            continue
        filters, *kernel = tensor.shape
        reads = len(kernel) == 3 and kernel[0] == model.in_chans
        if not reads or wanted[name].shape != (filters, in_chans, *kernel[1:]):
            raise ValueError(
                f"{type(model).__name__} cannot be changed from {model.in_chans} to {in_chans} "
                f"colour channels: {name} depends on them, too; use images with {model.in_chans}"
            )
        kept[name] = spread(tensor, in_chans)
    changed.load_state_dict(kept)
    return changed.to(device=like.device, dtype=like.dtype).train(model.training)


def spread(
    kernels: Float[Tensor, "filters chans height width"], in_chans: int
) -> Float[Tensor, "filters in_chans height width"]:
    """Kernels for another number of channels, with the same sum over channels."""
    return kernels.sum(1, keepdim=True).div(in_chans).repeat(1, in_chans, 1, 1)


def _owner(name: str) -> str:
    """The module that a weight belongs to."""
    return name.rpartition(".")[0]
