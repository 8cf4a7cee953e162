"""Measure the cells of an experiment: skip what is done, go on with what was interrupted."""

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

from clustercaps.data import DataError, is_streamed
from clustercaps.experiments import get_experiment
from clustercaps.experiments.harness.cells import Cell, Experiment, Workspace
from clustercaps.experiments.harness.markdown import fragment
from clustercaps.experiments.harness.store import Store, key
from clustercaps.utils.errors import unknown
from clustercaps.utils.files import write_atomically
from clustercaps.utils.machine import machine
from clustercaps.utils.plotting import save


@dataclass(frozen=True)
class Request:
    """What the command line asks for.

    Args:
        name: Of the experiment.
        budget: "smoke", "quick" or "full".
        seeds: None for those of the budget.
        cells: Ids or shell patterns of the cells that are wanted; none for all.
        out: Where results go; runs go to `runs` in it.
        data_dir: Folder with the official files of the data, if not the cache.
        workers: Processes that read streamed images.
        fresh: Measure anew what is stored or was begun.
    """

    name: str
    budget: str
    seeds: tuple[int, ...] | None = None
    cells: tuple[str, ...] = ()
    out: Path = Path("results")
    data_dir: str | None = None
    workers: int = 2
    fresh: bool = False

    @property
    def path(self) -> Path:
        """Of the CSV; the other files are beside it."""
        return self.out / f"{self.name}-{self.budget}.csv"


def reproduce(request: Request) -> int:
    """Measure what is not stored yet, and write the table, the figure and their text.

    Returns 0, or 1 if data for some of the cells could not be had.
    """
    experiment = get_experiment(request.name)
    store = Store(request.path, experiment.cells(request.budget))
    wanted = list(chosen(experiment, request))
    if request.fresh and is_first_process():
        store.forget({(cell.id, seed) for cell, seed in wanted})
    stored = set() if request.fresh else {key(row) for row in store.rows()}
    todo = [(cell, seed) for cell, seed in wanted if (cell.id, seed) not in stored]
    say(f"{request.path}: {len(wanted) - len(todo)} of {len(wanted)} cells and seeds are there")
    missing: dict[str, str] = {}
    began = time.monotonic()
    for number, (cell, seed) in enumerate(todo):
        if cell.data not in missing:
            say(f"[{number + 1}/{len(todo)}] {cell.id}, seed {seed}{left(began, number, todo)}")
            try:
                measure(cell, seed, request, store)
            except DataError as error:
                missing[cell.data] = str(error)
    for name, reason in missing.items():
        ids = dict.fromkeys(cell.id for cell, _ in todo if cell.data == name)
        say(f"left out: {', '.join(ids)}\n{reason}\n{how(name)}")
    if is_first_process():
        publish(experiment, request, store)
    return 1 if missing else 0


def chosen(experiment: Experiment, request: Request) -> Iterator[tuple[Cell, int]]:
    """The cells and seeds that are wanted: seed by seed, so that a table fills evenly."""
    cells = experiment.cells(request.budget)
    for pattern in request.cells:
        if not any(fnmatchcase(cell.id, pattern) for cell in cells):
            raise KeyError(unknown(f"cell of {request.name}", pattern, [c.id for c in cells]))
    if request.cells:
        cells = [c for c in cells if any(fnmatchcase(c.id, p) for p in request.cells)]

    def seeds_of(cell: Cell) -> tuple[int, ...]:
        own = experiment.seeds_of(cell, request.budget)
        return request.seeds if request.seeds and cell.seeded else own

    for position in range(max(len(seeds_of(cell)) for cell in cells)):
        for cell in cells:
            seeds = seeds_of(cell)
            if position < len(seeds):
                yield cell, seeds[position]


def commands(request: Request) -> list[str]:
    """A shell command for every cell and seed that is wanted; each can be repeated."""
    experiment = get_experiment(request.name)
    lines = []
    for cell, seed in chosen(experiment, request):
        words = ["clustercaps", "reproduce", request.name, "--budget", request.budget]
        words += ["--cell", cell.id, "--seeds", str(seed)]
        if request.out != Request.out:
            words += ["--out", str(request.out)]
        if request.data_dir is not None:
            words += ["--data-dir", request.data_dir]
        lines.append(shlex.join(words))
    return lines


def measure(cell: Cell, seed: int, request: Request, store: Store) -> None:
    """Measure a cell with a seed and store its row."""
    folder = request.out / "runs" / request.path.stem / cell.id / f"seed-{seed}"
    workspace = Workspace(folder, request.data_dir, request.workers, request.fresh)
    measured = cell.measure(seed, workspace)
    settings = json.dumps(cell.settings, sort_keys=True)
    row = {
        **{"cell": cell.id, "seed": seed},
        **machine(),
        **measured,
        **{"settings_hash": cell.hash, "settings": settings},
    }
    if is_first_process():
        store.add(row)


def publish(experiment: Experiment, request: Request, store: Store) -> None:
    """Write figure and text of all that is stored, and print the table."""
    with store.locked():
        rows = store.rows()
        if not rows:
            return
        text = fragment(request.name, experiment, request.budget, rows)
        write_atomically(request.path.with_suffix(".md"), text)
        if find_spec("matplotlib") is None:
            say("no figure: pip install 'clustercaps[figures]'")
        else:
            figure = experiment.figure(rows, request.budget)
            save(figure, request.path.with_suffix(".png"), pdf=True)
    print(f"{experiment.table(rows, request.budget)}\n")
    for suffix in (".csv", ".md", ".png", ".pdf"):
        print(request.path.with_suffix(suffix))


def left(began: float, done: int, todo: Sequence[object]) -> str:
    """The time that is left, if the cells to come take as long as those before."""
    if not done:
        return ""
    seconds = (time.monotonic() - began) / done * (len(todo) - done)
    return f", about {seconds / 60:.0f} min left" if seconds > 90 else f", {seconds:.0f} s left"


def how(data: str) -> str:
    """What to do about an image set that is missing."""
    if is_streamed(data):
        return "Give --data-dir FOLDER, with train/CLASS/IMAGE and val/CLASS/IMAGE in it"
    return f"Try `clustercaps data get {data}`, or give the official files with --data-dir FOLDER"


def is_first_process() -> bool:
    """Whether this is the only process, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """A line on stderr, from the first process."""
    if is_first_process():
        print(text, file=sys.stderr, flush=True)
