"""Compare backends on several cases: check, interleaved timing, memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from clustercaps.bench import accelerator, official
from clustercaps.bench.cases import (
    CPU,
    RECOMPUTING,
    Case,
    Options,
    Workload,
    backends,
    build,
)
from clustercaps.bench.check import CHECKED_IMAGES, check
from clustercaps.bench.measure import Timing, matmul, matmul_gflop, take_turns
from clustercaps.bench.peak_memory import can_measure, peak_extra_mb
from clustercaps.bench.work import gflop, vote_bytes
from clustercaps.utils.progress import StepBar

MM = "torch.mm"
MEMORY = "memory"
# Peak memory of a training step in plain PyTorch, as a multiple of the votes of all layers:
# measured up to 5.9 for M1 and 3.7 for M3, and 4.2 and 1.9 for the released code.
EAGER_COPIES = 6.5


@dataclass(frozen=True)
class Result:
    """One measured cell: milliseconds, or megabytes for memory."""

    case: Case
    backend: str
    measure: str
    value: float
    iqr: float | None = None
    measurements: int = 1
    gflop: float | None = None

    @property
    def unit(self) -> str:
        """Unit of the value."""
        return "MB" if self.measure == MEMORY else "ms"


@dataclass(frozen=True)
class Comparison:
    """All measurements of one run.

    Args:
        results: The cells.
        errors: Relative error of each checked (case name, backend).
        mm_gflop_per_s: Speed of `torch.mm` in float32, interleaved with everything else.
        notes: What was skipped, and why.
    """

    results: list[Result]
    errors: dict[tuple[str, str], float]
    mm_gflop_per_s: float
    notes: list[str]


def compare(cases: Sequence[Case], measures: Sequence[str], options: Options) -> Comparison:
    """Check every candidate on every case, then time them interleaved.

    Args:
        cases: The cases.
        measures: Some of "forward", "training step", "one image" and "memory".
        options: The options from the command line.
    """
    device = options.device
    names, notes = backends(options.compiled, device)
    pairs = [(case, name) for case in cases for name in names]
    if options.official is not None:
        official.load_class(options.official)
        ours_too = [case for case in cases if case.model.startswith("m")]
        if not ours_too:
            raise ValueError("--official needs one of m1, m2, m3, m4 among --models")
        pairs += [(case, official.NAME) for case in ours_too]
        pairs.sort(key=lambda pair: cases.index(pair[0]))
    pairs, too_big = those_that_fit(pairs, device)
    notes += too_big
    if device.type != "cpu":
        pairs, failed = accelerator.those_that_run(
            pairs, lambda case, name: workload(case, name, options), device
        )
        notes += [*failed, accelerator.precision_note()]
    timed = [measure for measure in measures if measure != MEMORY]
    missing = why_no_memory(device) if MEMORY in measures else ""
    notes += [f"memory: skipped, {missing}"] if missing else []
    with_memory = MEMORY in measures and not missing
    turns = (len(pairs) * len(timed) + 1) * options.rounds
    with StepBar(2 * len(pairs) + turns if with_memory else len(pairs) + turns) as bar:
        errors = check_all(pairs, options, bar)
        timings, mm, mm_spread = time_all(pairs, timed, options, bar)
        results = [as_result(*key, timing) for key, timing in timings.items()]
        if with_memory:
            results += memory_of_all(pairs, options, bar)
    return Comparison(results, errors, mm, [*notes, mm_spread])


def those_that_fit(
    pairs: list[tuple[Case, str]], device: torch.device = CPU
) -> tuple[list[tuple[Case, str]], list[str]]:
    """Skip candidates that need more memory than is free, with a note."""
    free = free_bytes() if device.type == "cpu" else accelerator.free_bytes(device)
    kept, notes = [], []
    for case, name in pairs:
        votes = vote_bytes(case)
        stored = votes[case.layer - 1] if case.layer else sum(votes)
        needed = 0.0 if name in RECOMPUTING else EAGER_COPIES * stored
        if free is None or needed < 0.9 * free:
            kept.append((case, name))
            continue
        notes.append(
            f"{name} on {case.name}: skipped, stored votes need about {needed / 1e9:.0f} GB, "
            f"{free / 1e9:.0f} GB are free; use a smaller --batch"
        )
    return kept, notes


def free_bytes() -> int | None:
    """Free memory, if the system reports it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def why_no_memory(device: torch.device) -> str:
    """Why peak memory cannot be measured; empty if it can."""
    if device.type == "cpu":
        cannot = "this system cannot reset the high-water mark of a process"
        return "" if can_measure() else cannot
    return "" if accelerator.can_measure(device) else f"torch reports no peaks for {device}"


@accelerator.full_precision()
def check_all(
    pairs: Sequence[tuple[Case, str]], options: Options, bar: StepBar
) -> dict[tuple[str, str], float]:
    """Errors of all candidates; raises an error for the first wrong one."""
    errors = {}
    for case in dict.fromkeys(case for case, _ in pairs):
        names = [name for other, name in pairs if other == case]
        few = replace(case, batch=min(case.batch, CHECKED_IMAGES))
        bar.say(f"checking {case.name} on {few.batch} images")
        ours = [name for name in names if name != official.NAME]
        for name, error in check(few, ours, options.device).items():
            errors[case.name, name] = error
        if official.NAME in names:
            assert options.official is not None
            error = official.check_official(case, options.official, options.device)
            errors[case.name, official.NAME] = error
        bar.step(len(names))
    return errors


def workload(case: Case, name: str, options: Options) -> Workload:
    """A case with one of our backends or the released code."""
    if name != official.NAME:
        return build(case, name, options.device)
    assert options.official is not None
    return official.build_official(case, options.official, options.device)


def time_all(
    pairs: Sequence[tuple[Case, str]], measures: Sequence[str], options: Options, bar: StepBar
) -> tuple[dict[tuple[Case, str, str], Timing], float, str]:
    """Timings by case, backend and measure; the speed of `torch.mm` in between, and its spread."""
    functions: dict[tuple[Case, str, str], Callable[[], object]] = {}
    works = [workload(case, name, options) for case, name in pairs]
    # Candidates for the same cell run directly after each other.
    for case in dict.fromkeys(case for case, _ in pairs):
        for measure in measures:
            for (other, name), work in zip(pairs, works, strict=True):
                if other == case:
                    functions[other, name, measure] = work.calls()[measure]
    side = 256 if options.quick else 2048
    mm_key = (Case(MM, 1, side, 1), MM, MM)
    functions[mm_key] = matmul(side, options.device)
    timings = take_turns(functions, options.rounds, options.seconds, bar, options.device)
    mm = timings.pop(mm_key)
    spread = f"torch.mm: interquartile range is {100 * mm.iqr / mm.median:.0f} % of its median"
    return timings, matmul_gflop(side) / mm.median, spread


def as_result(case: Case, name: str, measure: str, timing: Timing) -> Result:
    """A timing in milliseconds, with its operation count."""
    work = gflop(case, measure, recomputes=name in RECOMPUTING)
    return Result(
        *(case, name, measure, 1e3 * timing.median, 1e3 * timing.iqr, timing.measurements, work)
    )


def memory_of_all(
    pairs: Sequence[tuple[Case, str]], options: Options, bar: StepBar
) -> list[Result]:
    """Peak memory of a training step of each candidate; on the CPU, each in its own process."""
    results = []
    threads = torch.get_num_threads()
    for case, name in pairs:
        bar.say(f"memory of {name} on {case.name}")
        if options.device.type == "cpu":
            folder = options.official if name == official.NAME else None
            value: float | None = peak_extra_mb(case, name, folder, threads)
        else:
            value = accelerator.peak_extra_mb(workload(case, name, options), options.device)
        if value is not None:
            results.append(Result(case, name, MEMORY, value))
        bar.step()
    return results
