"""Peak memory of one training step, in its own process.

The step runs once as a warm-up: libraries are loaded, oneDNN and the compiler generate their code
(the kernel is already built). Then freed memory is returned to the system, the high-water mark of
the process's resident memory is reset, and the step runs again. The high-water mark after the step
minus the resident memory before it is what the step needs on top of the network and its images.
"""

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import clustercaps
from clustercaps.bench.cases import Case, Workload, build

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_HIGH_WATER_MARK = "5"


def can_measure() -> bool:
    """Whether the system can report and reset the high-water mark of a process (Linux)."""
    return STATUS.exists() and os.access(CLEAR_REFS, os.W_OK)


def peak_extra_mb(
    case: Case,
    backend: str,
    official: Path | None = None,
    threads: int = 1,
    folder: Path = Path(clustercaps.__file__).parent.parent,
) -> float:
    """Peak memory of a training step in megabytes, above the level before it.

    Args:
        case: The network to train.
        backend: One of our backends, or the name of the released network.
        official: Checkout of the released code, if it is used.
        threads: Number of torch threads; some buffers exist once per thread.
        folder: Folder of the package; the running one by default.
    """
    task = {"case": asdict(case), "backend": backend, "threads": threads}
    task["official"] = None if official is None else str(official.resolve())
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        # Freed blocks are returned to the system immediately: memory in use is measured, not what
        # the C library caches.
        "MALLOC_MMAP_THRESHOLD_": "131072",
    }
    done = subprocess.run(
        # This file's text: another version of the package may not have it.
        [sys.executable, "-c", Path(__file__).read_text(encoding="utf-8"), json.dumps(task)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise OSError(
            f"measuring the memory of {backend} on {case.name} failed with code "
            f"{done.returncode}: {last}"
        )
    return float(done.stdout.split()[-1])


def status_mb(field: str) -> float:
    """An entry of /proc/self/status, in megabytes of 10**6 bytes."""
    lines = STATUS.read_text(encoding="utf-8").splitlines()
    entry = next(line for line in lines if line.startswith(field + ":"))
    return int(entry.split()[1]) * 1024 / 1e6


def trim() -> None:
    """Return freed memory to the system, if the C library supports it."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        return


def measure(work: Workload) -> float:
    """Peak of one training step in this process."""
    work.training_step()
    work.module.zero_grad(set_to_none=True)
    trim()
    CLEAR_REFS.write_text(RESET_HIGH_WATER_MARK)
    before = status_mb("VmRSS")
    work.training_step()
    return status_mb("VmHWM") - before


def main() -> None:
    """Run the task from the command line and print megabytes."""
    import torch

    task = json.loads(sys.argv[1])
    torch.set_num_threads(task["threads"])
    case = Case(**task["case"])
    if task["official"] is None:
        work = build(case, task["backend"])
    else:
        from clustercaps.bench.official import build_official

        work = build_official(case, Path(task["official"]))
    print(measure(work))


if __name__ == "__main__":
    main()
