"""Measure the cells of an experiment: skip finished cells, resume interrupted ones."""

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from clustercaps.data import DataError, is_streamed
from clustercaps.experiments import get_experiment
from clustercaps.experiments.harness.cells import Cell, Experiment, Row, Workspace
from clustercaps.experiments.harness.drawing import draw
from clustercaps.experiments.harness.markdown import fragment
from clustercaps.experiments.harness.store import Store, key, read_rows
from clustercaps.utils.errors import unknown
from clustercaps.utils.files import write_atomically
from clustercaps.utils.json_files import json_text
from clustercaps.utils.machine import machine


@dataclass(frozen=True)
class Request:
    """The request from the command line.

    Args:
        name: Name of the experiment.
        budget: "smoke", "quick", "night" or "full".
        seeds: None for those of the budget.
        cells: Ids or glob patterns of the selected cells; empty for all.
        out: Results folder; runs go to its subfolder `runs`.
        data_dir: Folder with the official files of the dataset, if not the cache.
        workers: Data loading processes for streamed images.
        fresh: Discard stored results and runs, and start over.
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
        """Path of the CSV; the other files are next to it."""
        return self.out / f"{self.name}-{self.budget}.csv"


def reproduce(request: Request) -> int:
    """Measure what is not stored yet, and write table, figure and text.

    Returns 0, or 1 if the dataset of some cells is not available.
    """
    experiment = get_experiment(request.name)
    store = Store(request.path, experiment.cells(request.budget))
    wanted = list(chosen(experiment, request))
    if request.fresh and is_first_process():
        store.forget({(cell.id, seed) for cell, seed in wanted})
    stored = set() if request.fresh else {key(row) for row in store.rows()}
    todo = [(cell, seed) for cell, seed in wanted if (cell.id, seed) not in stored]
    say(f"{request.path}: {len(wanted) - len(todo)} of {len(wanted)} cells and seeds are done")
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
        say(f"skipped: {', '.join(ids)}\n{reason}\n{how(name)}")
    if is_first_process():
        publish(experiment, request, store)
    return 1 if missing else 0


def chosen(experiment: Experiment, request: Request) -> Iterator[tuple[Cell, int]]:
    """The selected cells and seeds, ordered by seed, so that the table fills evenly."""
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
    """One shell command per selected cell and seed; each can be repeated."""
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
    """Measure a cell with one seed and store its row."""
    name, id = cell.same_as or (request.name, cell.id)
    folder = request.out / "runs" / replace(request, name=name).path.stem / id / f"seed-{seed}"
    workspace = Workspace(folder, request.data_dir, request.workers, request.fresh)
    measured = None if request.fresh else stored_elsewhere(cell, seed, request)
    if measured is None:
        measured = cell.measure(seed, workspace)
    settings = json_text(cell.settings, sort_keys=True)
    row = {
        **machine(),
        **measured,
        **{"cell": cell.id, "seed": seed, "settings_hash": cell.hash, "settings": settings},
    }
    if is_first_process():
        store.add(row)


def stored_elsewhere(cell: Cell, seed: int, request: Request) -> Row | None:
    """The row of the same run in another experiment, if it is there."""
    if cell.same_as is None:
        return None
    name, id = cell.same_as
    path = replace(request, name=name).path
    for row in read_rows(path):
        if key(row) == (id, seed) and not cell.changes(json.loads(row["settings"])):
            say(f"the run is {id}, seed {seed}, in {path}")
            return row
    return None


def publish(experiment: Experiment, request: Request, store: Store) -> None:
    """Write figure and text of all stored results, and print the table."""
    with store.locked():
        rows = store.rows()
        if not rows:
            return
        text = fragment(request.name, experiment, request.budget, rows)
        write_atomically(request.path.with_suffix(".md"), text)
        pictures = draw(experiment, request.budget, rows, request.path)
    print(f"{experiment.table(rows, request.budget)}\n")
    for path in (request.path, request.path.with_suffix(".md"), *pictures):
        print(path)


def left(began: float, done: int, todo: Sequence[object]) -> str:
    """Estimated remaining time, from the mean time per cell so far."""
    if not done:
        return ""
    seconds = (time.monotonic() - began) / done * (len(todo) - done)
    return f", about {seconds / 60:.0f} min left" if seconds > 90 else f", {seconds:.0f} s left"


def how(data: str) -> str:
    """What to do about a missing dataset."""
    if is_streamed(data):
        return "Pass --data-dir FOLDER, which contains train/CLASS/IMAGE and val/CLASS/IMAGE"
    return f"Try `clustercaps data get {data}`, or pass --data-dir FOLDER with the official files"


def is_first_process() -> bool:
    """Whether this is the only process, or rank 0 under torchrun."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """Print a line to stderr, in the first process only."""
    if is_first_process():
        print(text, file=sys.stderr, flush=True)
