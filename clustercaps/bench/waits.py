"""`clustercaps bench waits`: short waits of threads against OpenMP's own, also on a busy machine.

The `clustercaps` command makes threads wait briefly (`utils/waits.py`). Processes with either kind
of wait run training steps in turns, first alone, then beside a program that keeps one core busy.
Close other programs first.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from clustercaps.bench.against import quartiles
from clustercaps.bench.cases import Case, Options, require_kernel
from clustercaps.bench.csv_output import write_csv
from clustercaps.bench.versions import PACKAGE, running
from clustercaps.utils.machine import machine
from clustercaps.utils.progress import StepBar
from clustercaps.utils.tables import text_table
from clustercaps.utils.waits import SETTINGS, SPIN_COUNT, SPINS

COLUMNS = (
    *("model", "in_chans", "image_side", "batch", "threads", "busy_programs", "spins"),
    *("long_ms", "short_ms", "times_long", "times_long_low", "times_long_high", "rounds"),
)
BUSY_PROGRAMS = (0, 1)


def run(options: Options) -> None:
    """Time training steps with either kind of wait, and print and store the results."""
    require_kernel("waits")
    cases = [options.case(model) for model in options.models]
    rows, shown = [], []
    with StepBar(len(cases) * len(BUSY_PROGRAMS) * options.rounds) as bar:
        for case in cases:
            for programs in BUSY_PROGRAMS:
                bar.say(f"{case.name}, beside {programs} busy programs")
                long, short = measure(case, programs, options, bar)
                low, ratio, high = quartiles([a / b for a, b in zip(long, short, strict=True)])
                times = statistics.median(long), statistics.median(short)
                rows.append(
                    [
                        *(case.model, case.in_chans, case.size, case.batch),
                        *(torch.get_num_threads(), programs, SPINS, *times),
                        *(ratio, low, high, options.rounds),
                    ]
                )
                texts = (f"{time:.1f}" for time in times)
                ratio_text = f"{ratio:.2f}x [{low:.2f}, {high:.2f}]"
                shown.append([case.name, str(programs), *texts, ratio_text])
    told = machine()
    write_csv(options.out, COLUMNS, rows, told)
    print(f"{told['machine']}; torch {told['torch']}; commit {told['commit']}")
    print("training step in ms, medians of rounds; quartiles in [ ]\n")
    header = ["network", "busy programs", "OpenMP's waits", "short waits", "long / short"]
    print(f"{text_table(header, shown)}\n\n{options.out}")


def measure(
    case: Case, programs: int, options: Options, bar: StepBar
) -> tuple[list[float], list[float]]:
    """Milliseconds of a step in every round, with OpenMP's waits and with short ones."""
    threads = torch.get_num_threads()
    seen: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        unset = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        versions = [
            stack.enter_context(running(PACKAGE.parent, case, threads, environment))
            for environment in (unset, {**unset, SPIN_COUNT: str(SPINS)})
        ]
        stack.enter_context(busy(programs))
        for number in range(options.rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                turn = versions[which].ask(
                    "training step", seconds=options.seconds, warm_up=number == 0
                )
                seen[which].append(1e3 * turn["wall"])
            bar.step()
    return seen


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Programs that keep a core busy each, while the context lasts."""
    processes = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
