"""Checkpoints: one safetensors file with a JSON state inside, written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old or the new one, never half of it."""
    unfinished = temporary(path)
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def temporary(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    return path.with_name(f".{path.name}.unfinished")


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors and a JSON state; on any failure the previous file stays as it was."""
    unfinished = temporary(path)
    # Copies, because safetensors refuses tensors that share memory.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(plain, unfinished, {"state": json.dumps(state)})
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync_folder(path.parent)
    # safetensors wraps a full disk in an error of its own.
    except (OSError, SafetensorError) as error:
        kept = "the previous checkpoint is intact" if path.exists() else "there is none yet"
        raise OSError(
            f"cannot write {path}: {error}; {kept}. Make room, then run again with --resume"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def restore_model(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back a network's weights."""
    model.load_state_dict(tensors)
