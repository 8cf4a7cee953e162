"""How votes K and capsule dimension D affect the error of the M-variants on CIFAR-10.

`full` is the paper's table: K in {5, 8}, D in {6, 8, 16, 24}, 300 epochs, three seeds.

`night` uses D of 6 and 8 on all of CIFAR-10, 15 epochs of the strong recipe, one seed.

`quick` uses D of 6 and 8 on 10,000 images of CIFAR-10, 4 epochs of the fast recipe, two seeds.
Estimate: 157 steps per epoch at 70 to 160 ms, growing with K and D: 44 to 100 s per run, 10 minutes
for the 8 runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.cells import Cell, Experiment, Row
from clustercaps.experiments.harness.findings import Finding, below, judge
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.plots import error_figure
from clustercaps.experiments.harness.spread import Spread, first_rows, set_title, spreads
from clustercaps.experiments.harness.training_cells import training
from clustercaps.experiments.paper import paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def cells(budget: str) -> list[Cell]:
    """M1 with other K and D: one cell per pair."""
    pairs = [(entry["votes"], entry["dim"]) for entry in paper()["kd-grid"]]
    if budget == "full":
        return [pair(k, d, "cifar10", "paper") for k, d in pairs]
    if budget == "night":
        return [pair(k, d, "cifar10", "strong", epochs=15) for k, d in pairs if d <= 8]
    if budget == "quick":
        small = [(k, d) for k, d in pairs if d <= 8]
        return [pair(k, d, "cifar10", "fast", epochs=4, limit=10_000) for k, d in small]
    size: dict[str, Any] = {"epochs": 1, "limit": 64, "batch_size": 32}
    return [pair(k, 2, "fashion-mnist-mini", "fast", **size) for k in (4, 5)]


def pair(votes: int, dim: int, data: str, recipe: str, **changes: Any) -> Cell:
    """A cell of the grid."""
    network = {"votes": votes, "dim": dim}
    return training(f"k{votes}d{dim}", "m1", data, recipe, model_settings=network, **changes)


def table(rows: Sequence[Row], _: str) -> str:
    """One row per pair, with the paper's error and parameter count."""
    errors, known = spreads(rows), first_rows(rows)
    printed = {f"k{e['votes']}d{e['dim']}": e for e in paper()["kd-grid"]}
    lines = []
    for id, spread in errors.items():
        entry = printed.get(id)
        theirs = [f"{entry['error']:.2f}", entry["parameters"]] if entry else ["", ""]
        lines.append([*split(id), f"{known[id]['parameters']:,}", str(spread), *theirs])
    paper_says = ["paper, CIFAR-10, error %", "paper, parameters"]
    return markdown_table(["K", "D", "parameters", "error %", *paper_says], lines)


def split(id: str) -> tuple[str, str]:
    """K and D of a cell."""
    votes, dim = id.removeprefix("k").split("d")
    return votes, dim


def figure(rows: Sequence[Row], budget: str) -> "Figure":
    """Error over D, one series per K."""
    ours: dict[str, dict[str, Spread]] = {}
    for id, spread in spreads(rows).items():
        votes, dim = split(id)
        ours.setdefault(f"K = {votes}", {})[dim] = spread
    printed: dict[str, dict[str, float]] = {}
    for entry in paper()["kd-grid"]:
        printed.setdefault(f"K = {entry['votes']}", {})[str(entry["dim"])] = entry["error"]
    title = set_title(rows[0])
    return error_figure(
        {title: ours},
        "capsule dimension D",
        printed={title: printed} if budget in ("night", "full") else {},
    )


def finding(rows: Sequence[Row]) -> Finding | None:
    """Whether more votes help for every D, and larger capsules for every K."""
    errors = {tuple(map(int, split(id))): spread for id, spread in spreads(rows).items()}
    steps = [
        (larger, smaller)
        for larger in errors
        for smaller in errors
        if larger > smaller and sum(a != b for a, b in zip(larger, smaller, strict=True)) == 1
    ]
    evidence = [f"K {votes}, D {dim}: {spread} %" for (votes, dim), spread in errors.items()]
    claim = "the error decreases with the votes K and with the capsule dimension D."
    return judge(claim, [below(errors[a], errors[b]) for a, b in steps], evidence)


EXPERIMENT = Experiment(
    title="Votes K and capsule dimension D",
    cells=cells,
    table=table,
    figure=figure,
    finding=finding,
    seeds={"smoke": (0,), "quick": (0, 1), "night": (0,), "full": (0, 1, 2)},
    notes="""\
The differences from the paper are those of the classification table. After few epochs the order of
the cells shows how fast they learn, not their final error.""",
)
