"""Parameter counts of every network next to the paper's. Counted from shapes, nothing is trained.

All budgets are the same except smoke, which counts two networks.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.cells import Cell, Experiment, Row, Workspace
from clustercaps.experiments.harness.counts import (
    CLASSIFIERS,
    TASKS,
    fits,
    printed_counts,
    split_printed,
)
from clustercaps.experiments.harness.findings import Finding, judge
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.plots import COLUMN, add_legend, finish
from clustercaps.experiments.paper import paper
from clustercaps.models.registry import count_parameters
from clustercaps.utils.plotting import new_figure, style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OTHERS = {"viewpoint_cnn": "smallnorb", "affine_capsules": "mnist", "affine_cnn": "mnist"}
# Verdict in the CSV -> in the table.
SHOWN = {
    "fits": "matches",
    "fits with a 10-way head": "matches with a 10-way head",
    "other": "does not match",
}


def cells(budget: str) -> list[Cell]:
    """The classifiers on every dataset, the grid of K and D, and the other networks."""
    models = ("m1", "s3") if budget == "smoke" else CLASSIFIERS
    found = [
        cell(f"{model}/{data}", model, task, printed_counts()[model].get(data, ""))
        for model in models
        for data, task in TASKS.items()
        if "10-way" not in data
    ]
    if budget == "smoke":
        return found
    for entry in paper()["kd-grid"]:
        size = {"votes": entry["votes"], "dim": entry["dim"]}
        id = f"k{entry['votes']}d{entry['dim']}/cifar10"
        found.append(cell(id, "m1", {**TASKS["cifar10"], **size}, entry["parameters"]))
    for model, data in OTHERS.items():
        found.append(cell(f"{model}/{data}", model, {}, printed_counts()[model][data]))
    return found


def cell(id: str, model: str, changes: dict[str, Any], printed: str) -> Cell:
    """A network whose parameters are counted."""
    settings = {"model": model, "changes": changes, "printed": printed}
    return Cell(id, settings, partial(count, settings), seeded=False)


def count(settings: dict[str, Any], _: int, __: Workspace) -> Row:
    """Count, also with ten classes, and compare with the printed count."""
    model, changes, printed = settings["model"], settings["changes"], settings["printed"]
    ours = count_parameters(model, **changes)
    ten_way = count_parameters(model, **{**changes, "num_classes": 10})
    verdict = "fits" if fits(ours, printed) else "other"
    if verdict == "other" and fits(ten_way, printed):
        verdict = "fits with a 10-way head"
    digits, step = split_printed(printed)
    return {
        **{"model": model, "parameters": ours, "parameters_10_way": ten_way},
        **{"printed": printed, "verdict": verdict, "percent_off": 100 * (ours / digits / step - 1)},
    }


def table(rows: Sequence[Row], _: str) -> str:
    """Every count, the printed one, and whether they agree."""
    lines = [
        [row["cell"], f"{row['parameters']:,}", str(row["printed"]), SHOWN[row["verdict"]]]
        for row in rows
    ]
    return markdown_table(["network/dataset", "parameters", "paper", "agreement"], lines)


def figure(rows: Sequence[Row], _: str) -> "Figure":
    """How far each count is from the printed one, by dataset."""
    drawn = new_figure(2 * COLUMN, 2.6)
    ax = drawn.subplots()
    models = list(dict.fromkeys(row["cell"].split("/")[0] for row in rows))
    sets = list(dict.fromkeys(row["cell"].split("/")[1] for row in rows))
    for number, data in enumerate(sets):
        mine = [row for row in rows if row["cell"].endswith(f"/{data}")]
        shift = 0.13 * (number - (len(sets) - 1) / 2)
        places = [models.index(row["cell"].split("/")[0]) + shift for row in mine]
        off = [row["percent_off"] for row in mine]
        colour, marker = style_of(number)
        ax.plot(places, off, marker, ms=4, color=colour, label=data)
    finish(ax, models)
    for tick in ax.get_xticklabels():
        tick.set(rotation=45, ha="right")
    ax.axhline(0, color="0.5", lw=0.8)
    ax.set_ylabel("difference from\nthe printed count (%)", fontsize=8)
    add_legend(drawn)
    return drawn


def finding(rows: Sequence[Row]) -> Finding | None:
    """Whether the networks have the printed parameter counts."""
    answers = [row["verdict"] == "fits" for row in rows]
    evidence = [f"{sum(answers)} of {len(answers)} counts match"]
    return judge("the networks have the printed parameter counts.", answers, evidence)


EXPERIMENT = Experiment(
    title="Parameters",
    cells=cells,
    table=table,
    figure=figure,
    finding=finding,
    notes="""\
Where counts differ, the paper contradicts itself: on smallNORB six of its networks are counted with
ten classes although the dataset has five, and S3 on Fashion-MNIST repeats its count on CIFAR-10.
The reconstruction network that the paper calls C4K4D32 has the printed counts only as C4 K8 D4. A
count matches if it equals the printed one when rounded or truncated.""",
)
