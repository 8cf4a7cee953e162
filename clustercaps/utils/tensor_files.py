"""Tensors in safetensors files: written atomically, read with errors that name the file."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from clustercaps.utils.files import replacing
from clustercaps.utils.paths import check_input


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors; on failure the previous file is unchanged and nothing else is left."""
    # Copies, because safetensors rejects tensors that share memory.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    # Not its save_file: that has a temporary file of its own, which a killed process leaves, and
    # files that only their owner can read.
    with replacing(path) as part:
        part.write_bytes(save(plain, metadata))


def read_tensors(path: Path, advice: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file; all numbers must be finite.

    Args:
        path: The file.
        advice: What to do if it cannot be used; the end of the error message.
    """
    check_input(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (SafetensorError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is corrupt or not a safetensors file ({error}); {advice}"
        ) from error
    bad = not_finite(tensors)
    if bad is not None:
        raise ValueError(f"{path} is damaged: {bad} contains NaN or infinity; {advice}")
    return tensors, metadata


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The first tensor with NaN or infinity; None if there is none."""
    for name, tensor in tensors.items():
        floating = tensor.is_floating_point() or tensor.is_complex()
        if floating and not bool(torch.isfinite(tensor).all()):
            return name
    return None


def misfits(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """How names, shapes and kinds of numbers differ from those wanted; empty if they do not."""
    problems = [f"{name} is missing" for name in wanted if name not in found]
    problems += [f"{name} is not part of the network" for name in found if name not in wanted]
    problems += [
        f"{name} has shape {tuple(found[name].shape)}, the network expects {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]
    problems += [
        f"{name} holds {found[name].dtype}, the network expects {tensor.dtype}"
        for name, tensor in wanted.items()
        if name in found and found[name].is_floating_point() != tensor.is_floating_point()
    ]
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return "; ".join(problems[:5]) + more
