"""Checkpoints: one safetensors file with JSON in its header, written atomically.

The header has the progress of the run (`state`), what the checkpoint belongs to (`run`), and a
digest of everything. Checkpoints of version 0.2.0 and earlier have only `state`.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from clustercaps.training.identity import tensor_digest
from clustercaps.utils.json_files import json_text, parse_object
from clustercaps.utils.tensor_files import read_tensors, write_tensors

ADVICE = "start over with --overwrite, or restore the file from a backup"


def save_checkpoint(
    path: Path, tensors: dict[str, Tensor], state: dict[str, Any], run: dict[str, Any]
) -> None:
    """Write tensors, progress and identity; on failure the previous file is unchanged."""
    texts = {"state": json_text(state), "run": json_text(run)}
    try:
        write_tensors(path, tensors, {**texts, "digest": tensor_digest(tensors, texts)})
    except OSError as error:
        kept = "the previous checkpoint is intact" if path.exists() else "there is none yet"
        raise OSError(
            f"cannot write {path}: {error.strerror or error}; {kept}. Free disk space, then run "
            "again with --resume"
        ) from error


def load_checkpoint(
    path: Path,
) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any] | None]:
    """Tensors, progress and identity of a checkpoint; the identity is None in older ones."""
    tensors, header = read_tensors(path, ADVICE)
    texts = {name: text for name, text in header.items() if name in ("state", "run")}
    if "state" not in texts:
        raise ValueError(f"{path} is not a checkpoint: its header has no state; {ADVICE}")
    state = parse_object(texts["state"], f"the state in {path}")
    if "run" not in texts and "digest" not in header:
        return tensors, state, None
    if header.get("digest") != tensor_digest(tensors, texts) or "run" not in texts:
        raise ValueError(f"{path} is damaged: its digest does not match; {ADVICE}")
    return tensors, state, parse_object(texts["run"], f"the header of {path}")


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
    # A copy: torch reads from the start of the storage, also for a view into the middle of it.
    state = state.cpu().clone()
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
