"""A pool of rendering processes."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from jaxtyping import UInt8

from clustercaps.data.errors import DataError
from clustercaps.data.rendering.camera import SIDE
from clustercaps.data.rendering.turntable import CAMERAS, stereo_pairs

Job = dict[str, Any]
"""Arguments of `stereo_pairs`."""


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def render_jobs(
    jobs: Sequence[Job], workers: int
) -> Generator[UInt8[np.ndarray, "elevations lightings 2 side side"], None, None]:
    """Render positions of the turntable, in order; closing the generator ends the processes.

    Args:
        jobs: arguments of `stereo_pairs`, one dictionary per position.
        workers: number of processes to start; 0 renders in this process.
    """
    if workers == 0:
        yield from (stereo_pairs(**job) for job in jobs)
        return
    processes = [_start() for _ in range(min(workers, len(jobs)))]
    idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
    for process in processes:
        idle.put(process)

    def render(job: Job) -> np.ndarray:
        process = idle.get()
        try:
            return _ask(process, job)
        finally:
            idle.put(process)

    pool = ThreadPoolExecutor(len(processes))
    try:
        yield from pool.map(render, jobs)
    finally:
        for process in processes:
            process.kill()
        pool.shutdown(cancel_futures=True)
        for process in processes:
            process.communicate()


def _start() -> "subprocess.Popen[bytes]":
    root = str(Path(__file__).parents[3])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    # One thread each: the work is already divided, and results cannot depend on the thread count.
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-m", "clustercaps.data.rendering.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **single, "PYTHONPATH": path},
    )


def _ask(process: "subprocess.Popen[bytes]", job: Job) -> np.ndarray:
    assert process.stdin is not None
    assert process.stdout is not None
    shape = (len(job["elevations"]), len(job["lightings"]), CAMERAS, SIDE, SIDE)
    try:
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.read(int(np.prod(shape)))
    except OSError as error:
        raise _ended(process) from error
    if len(answer) != np.prod(shape):
        raise _ended(process)
    return np.frombuffer(answer, np.uint8).reshape(shape)


def _ended(process: "subprocess.Popen[bytes]") -> DataError:
    return DataError(
        f"a rendering process failed (exit code {process.wait()}) and nothing was written; check "
        "that there is enough memory and try again"
    )
