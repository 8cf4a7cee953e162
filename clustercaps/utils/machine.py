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
    """The name of the CPU and, on x86, its family and model, if the system reports them.

    Clouds shorten the name: "AMD EPYC" is Zen 4 in one machine and Zen 5 in the next, with very
    different times. Family and model tell them apart.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    return processor_name(text) or platform.machine()


def processor_name(cpuinfo: str) -> str:
    """Name, family and model of the first processor in the text of /proc/cpuinfo, or ""."""
    first = cpuinfo.strip().partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    name = values.get("model name", "")
    if name and "cpu family" in values and "model" in values:
        return f"{name} (family {values['cpu family']}, model {values['model']})"
    return name


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
