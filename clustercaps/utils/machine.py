"""The conditions of a measurement: machine, versions, commit."""

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from clustercaps import __version__


def machine() -> dict[str, Any]:
    """The conditions to store with every measurement."""
    return {
        "machine": f"{processor()}, {torch.get_num_threads()} threads",
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "clustercaps": __version__,
        "commit": commit(),
    }


def processor() -> str:
    """The name of the CPU, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> str:
    """The commit of the checkout that is running, with "+" if it has changes; else "none"."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        changes = git("status", "--porcelain", "--untracked-files=no")
    except OSError:
        return "none"
    return f"{head}{'+' if changes else ''}" if head else "none"
