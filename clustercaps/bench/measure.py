"""Interleaved timing, so that noise affects all candidates equally."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.utils.benchmark import Measurement, Timer

from clustercaps.bench.accelerator import clock
from clustercaps.bench.cases import CPU
from clustercaps.utils.progress import StepBar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Timing:
    """Seconds of one call.

    Args:
        median: Median of all measurements.
        iqr: Interquartile range.
        measurements: Number of measurements.
    """

    median: float
    iqr: float
    measurements: int


def take_turns(
    functions: Mapping[Key, Callable[[], object]],
    rounds: int,
    seconds: float,
    bar: "StepBar",
    device: torch.device = CPU,
) -> dict[Key, Timing]:
    """Time functions in the order A B C A B C ..., each for some time in every round.

    Args:
        functions: The functions.
        rounds: Number of rounds.
        seconds: Minimum time per function and round; at least one call.
        bar: Progress bar.
        device: Where they run; the clock waits for it.
    """
    settings: dict[str, Any] = {"num_threads": torch.get_num_threads()}
    if device.type != "cpu":
        settings["timer"] = clock(device)
    timers = {
        key: Timer("function()", globals={"function": function}, **settings)
        for key, function in functions.items()
    }
    seen: dict[Key, list[Measurement]] = {key: [] for key in functions}
    for number in range(1, rounds + 1):
        bar.say(f"timing, round {number} of {rounds}")
        for key, timer in timers.items():
            turn = timer.blocked_autorange(min_run_time=seconds)
            seen[key].append(turn)
            if number == 1:
                bar.note(f"{show_key(key)}: {1e3 * turn.median:.3g} ms")
            bar.step()
    return {key: summarise(turns) for key, turns in seen.items()}


def show_key(key: Hashable) -> str:
    """A readable name of what is timed."""
    parts = key if isinstance(key, tuple) else (key,)
    return ", ".join(str(getattr(part, "name", part)) for part in parts)


def summarise(turns: list[Measurement]) -> Timing:
    """Statistics over the measurements of all rounds."""
    times = torch.tensor([t for turn in turns for t in turn.times], dtype=torch.float64)
    low, middle, high = torch.quantile(times, torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    return Timing(middle, high - low, len(times))


def show_timing(timing: Timing) -> str:
    """A time in milliseconds."""
    return show_spread(1e3 * timing.median, 1e3 * timing.iqr)


def show_spread(value: float, iqr: float) -> str:
    """A number with its interquartile range in brackets."""
    digits = 3 if value < 1 else 2 if value < 10 else 1
    return f"{value:.{digits}f} ({iqr:.{digits}f})"


def matmul(side: int, device: torch.device = CPU) -> Callable[[], object]:
    """A product of square float32 matrices, the yardstick for arithmetic speed."""
    left, right = torch.randn(2, side, side).to(device)
    return lambda: torch.mm(left, right)


def matmul_gflop(side: int) -> float:
    """Billions of operations of `matmul`."""
    return 2 * side**3 / 1e9
