"""Checkpoints: one safetensors file with a JSON state in its header, written atomically."""

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
    """Write tensors and a JSON state; on failure the previous file is unchanged."""
    # Copies, because safetensors rejects tensors that share memory.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    try:
        with replacing(path) as part:
            save_file(plain, part, {"state": json.dumps(state)})
    # safetensors reports a full disk with its own exception.
    except (OSError, SafetensorError) as error:
        kept = "the previous checkpoint is intact" if path.exists() else "there is none yet"
        raise OSError(
            f"cannot write {path}: {error}; {kept}. Free disk space, then run again with --resume"
        ) from error


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {})["state"])
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is not a readable checkpoint ({error}); start over with --overwrite"
        ) from error


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with `prefix` added to their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with `prefix`, with the prefix removed."""
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer state, such as momentum, as tensors named "parameter.name"."""
    return {
        f"{index}.{what}": value
        for index, memory in optimizer.state_dict()["state"].items()
        for what, value in memory.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the state from `optimizer_tensors`; learning rates come from the schedule."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, what = name.partition(".")
        state.setdefault(int(index), {})[what] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def random_state(device: torch.device) -> Tensor:
    """State of the default random generator (used by dropout) on this device."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


def restore_random_state(device: torch.device, state: Tensor) -> None:
    """Restore the state from `random_state`."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
