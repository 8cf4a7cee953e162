"""Kill a short training run at random moments, resume it each time, and compare the outcome.

    python tests/training/soak.py --kills 100

Ends with exit code 1 if a weight differs from the uninterrupted run, an epoch is lost or counted
twice, or a temporary file is left.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.torch import load_file
from tqdm import tqdm

from clustercaps.training.run_folder import RunFolder

SETTINGS = "m1 --limit 300 --batch-size 32 --set dim=2 --set votes=4 --save-every 0 --no-figures"


def command(out: Path, epochs: int) -> list[str]:
    flags = [*SETTINGS.split(), "--epochs", str(epochs), "--test-every", str(epochs)]
    return [sys.executable, "-m", "clustercaps", "train", *flags, "--resume", "--out", str(out)]


def kill_often(out: Path, epochs: int, kills: int, chance: random.Random) -> int:
    """Start the run again and again, killing it; returns how often it was killed."""
    killed = 0
    for _ in tqdm(range(kills), unit="kill"):
        process = subprocess.Popen(
            command(out, epochs), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        # Two seconds go into imports; half of the kills fall into the training, also into saves.
        deadline = time.monotonic() + chance.uniform(1.0, 8.0)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        if process.poll() is None:
            process.kill()
            killed += 1
        _, errors = process.communicate()
        if process.returncode not in (0, -9):
            raise SystemExit(f"a resumed run failed: {errors.decode()}")
        if RunFolder(out).result is not None:
            break
    return killed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        straight, interrupted = Path(folder, "straight"), Path(folder, "interrupted")
        subprocess.run(command(straight, arguments.epochs), check=True, capture_output=True)
        chance = random.Random(arguments.seed)
        killed = kill_often(interrupted, arguments.epochs, arguments.kills, chance)
        subprocess.run(command(interrupted, arguments.epochs), check=True, capture_output=True)
        ours, theirs = (
            load_file(out / "model" / "model.safetensors") for out in (interrupted, straight)
        )
        different = [name for name, tensor in theirs.items() if not ours[name].equal(tensor)]
        epochs = [line["epoch"] for line in RunFolder(interrupted).metrics()]
        left = [p.name for p in interrupted.rglob(".*") if p.name != ".lock"]
    whole = epochs == list(range(1, arguments.epochs + 1))
    print(
        f"{killed} kills: {len(different)} of {len(theirs)} tensors differ, "
        f"epochs {'complete' if whole else epochs}, files left over: {left or 'none'}"
    )
    return 1 if different or not whole or left or not killed else 0


if __name__ == "__main__":
    sys.exit(main())
