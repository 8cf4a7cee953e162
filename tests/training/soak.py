"""Kill short training runs at random moments, resume them each time, and compare the outcome.

    python tests/training/soak.py --kills 200 --kills-of-two 30

The second number is for runs on two processes: one of the two gets SIGKILL or
SIGTERM. Ends with exit code 1 if a weight differs from the uninterrupted run, an epoch is
lost or counted twice, or a temporary file is left.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.torch import load_file
from tqdm import tqdm

from clustercaps.training.run_folder import RunFolder

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.two_processes import children, environment, torchrun

SETTINGS = "m1 --limit 300 --batch-size 32 --set dim=2 --set votes=4 --save-every 0 --no-figures"


def command(out: Path, epochs: int, processes: int) -> list[str]:
    flags = [*SETTINGS.split(), "--epochs", str(epochs), "--test-every", str(epochs)]
    flags += ["--resume", "--out", str(out)]
    if processes > 1:
        return torchrun(*flags)
    return [sys.executable, "-m", "clustercaps", "train", *flags]


def start(out: Path, epochs: int, processes: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command(out, epochs, processes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    )


def wait_for_training(process: "subprocess.Popen[bytes]", out: Path, longest: float) -> None:
    """Wait until a checkpoint is written, the process has ended, or the time is over."""
    path = out / "checkpoint.safetensors"
    first = path.stat().st_mtime_ns if path.exists() else 0
    deadline = time.monotonic() + longest
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.stat().st_mtime_ns != first:
            return
        time.sleep(0.002)


def end_one(process: "subprocess.Popen[bytes]", processes: int, chance: random.Random) -> bool:
    """Kill a run; on two processes, send SIGKILL or SIGTERM to one of them."""
    if processes == 1:
        process.kill()
        return True
    while process.poll() is None:
        ranks = children(process.pid)
        if len(ranks) == processes:
            os.kill(chance.choice(ranks), chance.choice([signal.SIGKILL, signal.SIGTERM]))
            return True
        time.sleep(0.01)
    return False


def kill_often(out: Path, epochs: int, kills: int, processes: int, chance: random.Random) -> int:
    """Start the run again and again, killing it; returns how often it was killed."""
    killed = 0
    for _ in tqdm(range(kills), unit="kill", desc=f"{processes} process(es)"):
        process = start(out, epochs, processes)
        # A quarter of the kills comes before or while the network is built.
        if chance.random() < 0.25:
            time.sleep(chance.uniform(0, 4))
        else:
            wait_for_training(process, out, 120)
            time.sleep(chance.uniform(0, 1))
        killed += process.poll() is None and end_one(process, processes, chance)
        _, errors = process.communicate(timeout=120)
        for line in errors.decode().splitlines():
            if line.startswith("clustercaps: error") and "does not answer" not in line:
                raise SystemExit(f"a resumed run failed: {line}")
        if processes == 1 and process.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"a resumed run failed: {errors.decode()}")
        if RunFolder(out).result is not None:
            break
    return killed


def finish(out: Path, epochs: int, processes: int) -> None:
    subprocess.run(
        command(out, epochs, processes), check=True, capture_output=True, env=environment()
    )


def soak(folder: Path, epochs: int, kills: int, processes: int, seed: int) -> bool:
    """Compare an uninterrupted run with one that is killed again and again."""
    straight, interrupted = folder / f"straight-{processes}", folder / f"killed-{processes}"
    finish(straight, epochs, processes)
    killed = kill_often(interrupted, epochs, kills, processes, random.Random(seed))
    finish(interrupted, epochs, processes)
    ours, theirs = (
        load_file(out / "model" / "model.safetensors") for out in (interrupted, straight)
    )
    different = [name for name, tensor in theirs.items() if not ours[name].equal(tensor)]
    lines = [line["epoch"] for line in RunFolder(interrupted).metrics()]
    left = [p.name for p in interrupted.rglob(".*") if p.name != ".lock"]
    whole = lines == list(range(1, epochs + 1))
    print(
        f"{killed} kills on {processes} process(es): {len(different)} of {len(theirs)} tensors "
        f"differ, epochs {'complete' if whole else lines}, files left over: {left or 'none'}"
    )
    return not different and whole and not left and (killed > 0 or kills == 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kills-of-two", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # About a second of training between two kills.
        good = [
            soak(Path(folder), 10 + 4 * kills, kills, processes, arguments.seed)
            for processes, kills in ((1, arguments.kills), (2, arguments.kills_of_two))
            if kills
        ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
