"""Work that several processes do together: they fail together, and go on together."""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator

Value = TypeVar("Value")
# What users can cause; other exceptions are bugs, and end their process with a traceback.
USER_ERRORS = (ValueError, KeyError, OSError, ImportError)


def exchange_device(accelerator: Accelerator) -> torch.device:
    """Where to put what the processes exchange.

    One process exchanges nothing and keeps it on the CPU: not every device has float64.
    """
    return accelerator.device if accelerator.num_processes > 1 else torch.device("cpu")


def in_first(accelerator: Accelerator, work: Callable[[], Value]) -> Value:
    """Run `work` in the main process; all processes get its value, or raise its error."""
    if accelerator.num_processes == 1:
        return work()
    answer: list[Any] = [None, None]
    if accelerator.is_main_process:
        answer = _attempt(work)
    torch.distributed.broadcast_object_list(answer, 0)
    return _value(answer)


def in_all(accelerator: Accelerator, work: Callable[[], Value]) -> Value:
    """Run `work` in every process; if one raises an error, all do."""
    if accelerator.num_processes == 1:
        return work()
    own = _attempt(work)
    answers: list[Any] = [None] * accelerator.num_processes
    torch.distributed.all_gather_object(answers, own[1])
    failed = own[1] or next((error for error in answers if error), None)
    return _value([own[0], failed])


def same_in_all(accelerator: Accelerator, value: object, what: str) -> None:
    """Raise an error in every process unless all have the same value."""
    values = [value] * accelerator.num_processes
    if accelerator.num_processes > 1:
        torch.distributed.all_gather_object(values, value)
    for process, other in enumerate(values):
        if other != values[0]:
            raise ValueError(f"process {process} has other {what} than process 0; use the same")


def _attempt(work: Callable[[], Any]) -> list[Any]:
    try:
        return [work(), None]
    except USER_ERRORS as error:
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        return [None, str(message)]


def _value(answer: list[Any]) -> Any:
    value, failed = answer
    if failed is not None:
        raise ValueError(failed)
    return value


def resume_command(folder: Path, data_dir: str | None = None) -> str:
    """The command that resumes a run on as many processes as this one has."""
    words = ["clustercaps", "train", "--resume", "--out", str(folder)]
    if data_dir is not None:
        words += ["--data-dir", data_dir]
    return shlex.join([*launcher(), *words])


def launcher() -> list[str]:
    """How torchrun started this process, up to the name of the package; empty without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return []
    return ["torchrun", *(_torchrun_arguments() or _from_environment()), "-m"]


def _torchrun_arguments() -> list[str]:
    """The arguments of torchrun, as typed; empty if its process cannot be read."""
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    line = [os.fsdecode(word) for word in words]
    starts = [i for i, w in enumerate(line) if w == "torch.distributed.run" or "torchrun" in w]
    ends = [i for i, w in enumerate(line) if Path(w).name == "clustercaps"]
    if not starts or not ends or ends[0] < starts[0]:
        return []
    given = line[starts[0] + 1 : ends[0]]
    return given[:-1] if given[-1:] in (["-m"], ["--module"]) else given


def _from_environment() -> list[str]:
    names = {"--nnodes": "GROUP_WORLD_SIZE", "--nproc-per-node": "LOCAL_WORLD_SIZE"}
    return [word for flag, name in names.items() for word in (flag, os.environ.get(name, "1"))]


def is_first_here() -> bool:
    """Whether this is the only, or first, process of its machine: the one that prints."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


@contextmanager
def explained_losses(
    accelerator: Accelerator, folder: Path, data_dir: str | None
) -> Iterator[None]:
    """Turn an error of torch about another process into one that says how to resume."""
    try:
        yield
    except RuntimeError as error:
        if accelerator.num_processes == 1 or not _lost_connection(error):
            raise
        raise ConnectionError(
            "another process of this run has ended or does not answer. Resume with: "
            f"{resume_command(folder, data_dir)}"
        ) from error


def _lost_connection(error: RuntimeError) -> bool:
    if isinstance(error, torch.distributed.DistError):
        return True
    text = str(error).lower()
    return any(word in text for word in ("connection", "timed out", "gloo", "nccl"))
