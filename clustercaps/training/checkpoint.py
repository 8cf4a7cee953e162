"""Checkpoints: one safetensors file with a JSON state inside, written whole or not at all."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from clustercaps.utils.files import replacing


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors and a JSON state; on any failure the previous file stays as it was."""
    # Copies, because safetensors refuses tensors that share memory.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    try:
        with replacing(path) as part:
            save_file(plain, part, {"state": json.dumps(state)})
    # safetensors wraps a full disk in an error of its own.
    except (OSError, SafetensorError) as error:
        kept = "the previous checkpoint is intact" if path.exists() else "there is none yet"
        raise OSError(
            f"cannot write {path}: {error}; {kept}. Make room, then run again with --resume"
        ) from error


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {})["state"])
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is not a readable checkpoint ({error}); start again with --overwrite"
        ) from error


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under names that begin with `prefix`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, under the rest of their names."""
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory, such as momentum, as tensors named "parameter.what"."""
    return {
        f"{index}.{what}": value
        for index, memory in optimizer.state_dict()["state"].items()
        for what, value in memory.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave; learning rates come from the schedule."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, what = name.partition(".")
        state.setdefault(int(index), {})[what] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def random_state(device: torch.device) -> Tensor:
    """State of the generator that dropout draws from on this process's device."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


def restore_random_state(device: torch.device, state: Tensor) -> None:
    """Put back what `random_state` gave."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
