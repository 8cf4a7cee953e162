"""`clustercaps bench scaling`: how the time of a training step grows with K, D, C, image and batch.

One size varies at a time, the others are those of the network. Time = a * size^b is a straight line
of slope b on logarithmic axes; b is fitted by least squares. Fixed costs reduce b below 1 at small
sizes, so a straight line, time = fixed + c * size, is fitted as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from clustercaps.bench.cases import Case, Options, backends, build
from clustercaps.bench.check import check
from clustercaps.bench.csv_output import write_csv
from clustercaps.bench.figures import redraw
from clustercaps.bench.fits import exponent, straight_line
from clustercaps.bench.measure import Timing, take_turns
from clustercaps.models import get_preset
from clustercaps.utils.machine import machine
from clustercaps.utils.progress import StepBar
from clustercaps.utils.tables import text_table

COLUMNS = (
    *("model", "backend", "grows", "votes", "dim", "channels", "in_chans", "image_side", "batch"),
    *("size", "value", "unit", "iqr", "measurements", "exponent", "expected_exponent"),
    *("line_fixed_ms", "line_r_squared"),
)


@dataclass(frozen=True)
class Axis:
    """One size that varies.

    Args:
        name: Its name.
        setting: The setting of the network, or "size" or "batch".
        values: The sizes, in ascending order.
        expected: The exponent expected from the operation count.
    """

    name: str
    setting: str
    values: tuple[int, ...]
    expected: str

    def size(self, value: int) -> int:
        """The size for the fit: the area of the image, else the value itself."""
        return value**2 if self.setting == "size" else value

    def case(self, base: Case, value: int) -> Case:
        """The base case with this size changed."""
        if self.setting == "size":
            return replace(base, size=value)
        if self.setting == "batch":
            return replace(base, batch=value)
        return replace(base, changes=((self.setting, value),))


AXES = (
    Axis("votes K", "votes", (2, 4, 8, 16), "1"),
    Axis("dim D", "dim", (4, 8, 16, 32), "1 to 2"),
    Axis("channels C", "channels", (1, 2, 4, 8), "2"),
    Axis("image area", "size", (16, 32, 64, 128), "1"),
    Axis("batch", "batch", (16, 32, 64, 128), "1"),
)
# The check compares values: a few images of every shape are enough.
CHECKED_IMAGES = 2


def run(options: Options) -> None:
    """Time a training step along every axis, and print, store and plot the results."""
    names, notes = backends(options.compiled)
    backend = names[-1]
    base = options.case(options.models[0])
    axes = [replace(axis, values=axis.values[:2]) for axis in AXES] if options.quick else AXES
    cases = {(axis.name, v): axis.case(base, v) for axis in axes for v in axis.values}
    with StepBar(len(cases) * (1 + options.rounds)) as bar:
        for case in cases.values():
            bar.say(f"checking {case.name}")
            check(replace(case, batch=CHECKED_IMAGES), [backend])
            bar.step()
        functions = {key: build(case, backend).training_step for key, case in cases.items()}
        timings = take_turns(functions, options.rounds, options.seconds, bar)
    told = machine()
    print(f"{told['machine']}; torch {told['torch']}; commit {told['commit']}")
    print("\n".join([f"training step of {base.name} with {backend}, input {base.input}", *notes]))
    header = ["grows", "sizes", "ms", "exponent", "expected", "line: fixed ms", "r squared"]
    print("\n" + text_table(header, rows(axes, timings)))
    write_csv(options.out, COLUMNS, csv_rows(axes, cases, timings, backend), told)
    (figure,) = redraw([options.out])
    print(f"\n{options.out}\n{figure}")


Timings = dict[tuple[str, int], Timing]


def points(axis: Axis, timings: Timings) -> tuple[list[int], list[float]]:
    """Sizes along an axis, and their times in ms."""
    times = [1e3 * timings[axis.name, value].median for value in axis.values]
    return [axis.size(value) for value in axis.values], times


def rows(axes: Sequence[Axis], timings: Timings) -> list[list[str]]:
    """A line of the table per axis."""
    made = []
    for axis in axes:
        sizes, times = points(axis, timings)
        fixed, _, r_squared = straight_line(sizes, times)
        shown = [" ".join(map(str, sizes)), " ".join(f"{time:.1f}" for time in times)]
        fits = [f"{exponent(sizes, times):.2f}", axis.expected, f"{fixed:.1f}", f"{r_squared:.3f}"]
        made.append([axis.name, *shown, *fits])
    return made


def csv_rows(
    axes: Sequence[Axis], cases: dict[tuple[str, int], Case], timings: Timings, backend: str
) -> list[list[Any]]:
    """One row per point, in the order of `COLUMNS`."""
    made = []
    for axis in axes:
        found = points(axis, timings)
        fixed, _, r_squared = straight_line(*found)
        for value in axis.values:
            case, timing = cases[axis.name, value], timings[axis.name, value]
            settings = {**get_preset(case.model).settings, **dict(case.changes)}
            made.append(
                [
                    *(case.model, backend, axis.name),
                    *(settings[name] for name in ("votes", "dim", "channels")),
                    *(case.in_chans, case.size, case.batch, axis.size(value)),
                    *(1e3 * timing.median, "ms", 1e3 * timing.iqr, timing.measurements),
                    *(exponent(*found), axis.expected, fixed, r_squared),
                ]
            )
    return made
