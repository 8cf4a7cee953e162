"""Damage every format, archive, run folder file and command line, and count what came of it.

    make fuzz
    python tests/fuzz/run.py --mutants 5000 --seed 1 --out results/fuzz.json
    python tests/fuzz/run.py --only 'SVHN .mat' --show

Mutants run in worker processes with a time limit; a worker that dies or hangs is replaced. The exit
code is 1 if a mutant gave a traceback, crash or hang, or was accepted although it is damaged.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent.parent)]
SECONDS = 30
# Address space of a worker: a mutant must not take the memory of the machine.
MEMORY = 12 << 30


def worker() -> None:
    """Read "number target" lines, answer each with a line of JSON."""
    import resource

    import torch

    from fuzz.attempt import Bench
    from fuzz.commands import stay_small

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bench = Bench()
    os.environ["CLUSTERCAPS_DATA"] = str(bench.folder / "cache")
    stay_small()
    try:
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            seed, number, name = json.loads(line)
            outcome = bench.attempt(name, seed, number)
            answers.write(json.dumps(outcome) + "\n")
            answers.flush()
    finally:
        bench.close()


class Worker:
    """A worker process, replaced when it dies or hangs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._ready = False

    def run(self, task: tuple[int, int, str]) -> tuple[str, str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE), "--worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "CLUSTERCAPS_BACKEND": "reference"},
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        # Imports take long on a busy machine, and are no part of a mutant's time.
        if not self._ready:
            self._ready = process.stdout.readline() == "ready\n"
            assert self._ready, "the worker does not start"
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SECONDS)
        line = process.stdout.readline() if ready else ""
        if line:
            outcome, detail = json.loads(line)
            return outcome, detail
        # A dead worker closes its output before it is gone.
        code = process.wait() if ready else None
        self.close()
        return ("hang", f"{SECONDS} s") if code is None else ("crash", f"exit code {code}")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process, self._ready = None, False


def tasks(mutants: int, seed: int, only: str | None) -> list[tuple[int, int, str]]:
    """Mutants in turns over all targets, in proportion to their shares."""
    from fuzz.commands import COMMANDS
    from fuzz.targets import TARGETS

    shares = {name: target.share for name, target in TARGETS.items()} | dict.fromkeys(COMMANDS, 2)
    shares = {name: share for name, share in shares.items() if only in (None, name)}
    total = sum(shares.values())
    return [
        (seed, number, name)
        for name, share in shares.items()
        for number in range(-(-mutants * share // total))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--mutants", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one target")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--show", action="store_true", help="print every outcome")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        return 0
    from clustercaps.utils.machine import machine
    from fuzz.attempt import BAD, GOOD

    counts: dict[str, Counter[str]] = defaultdict(Counter)
    failures: list[dict[str, object]] = []
    process, began = Worker(), time.monotonic()
    for task in tasks(arguments.mutants, arguments.seed, arguments.only):
        outcome, detail = process.run(task)
        counts[task[2]][outcome] += 1
        if outcome in BAD:
            failures.append({"target": task[2], "number": task[1], outcome: detail})
        if outcome in BAD or arguments.show:
            print(f"{task[2]} {task[1]}: {outcome}: {detail}", flush=True)
    process.close()
    total = sum(counts.values(), Counter[str]())
    report = {
        "mutants": total.total(),
        "seed": arguments.seed,
        "total_seconds": round(time.monotonic() - began, 1),
        **{name: total[name] for name in (*GOOD, *BAD)},
        "targets": {name: dict(count) for name, count in counts.items()},
        "failures": failures,
        **machine(),
    }
    print({name: report[name] for name in ("mutants", "total_seconds", *GOOD, *BAD)})
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
