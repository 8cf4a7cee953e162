"""Training runs on two processes, started by torchrun."""

import os
import sys
from pathlib import Path

from safetensors.torch import load_file

# A network and a slice of data that train in seconds.
FLAGS = "m1 --limit 80 --test-limit 100 --batch-size 16 --no-figures --set dim=2".split()  # noqa: SIM905


def environment() -> dict[str, str]:
    """One thread per process: processes that wait for each other's threads take much longer."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def torchrun(*arguments: str, options: tuple[str, ...] = ("--nproc-per-node", "2")) -> list[str]:
    """The command that trains on two processes."""
    start = [sys.executable, "-m", "torch.distributed.run", *options]
    return [*start, "-m", "clustercaps", "train", *arguments]


def children(process: int) -> list[int]:
    """The processes that torchrun has started, in the order of their ranks."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ranked = {}
    for child in map(int, found):
        try:
            variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            # It has just ended.
            continue
        ranks = [v.removeprefix(b"RANK=") for v in variables if v.startswith(b"RANK=")]
        if ranks:
            ranked[int(ranks[0])] = child
    return [ranked[rank] for rank in sorted(ranked)]


def same_weights(one: Path, other: Path) -> bool:
    """Whether two finished runs have the same network, bit by bit."""
    ours, theirs = (load_file(out / "model" / "model.safetensors") for out in (one, other))
    return ours.keys() == theirs.keys() and all(ours[n].equal(t) for n, t in theirs.items())
