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
from clustercaps.experiments.harness.plots import finish
from clustercaps.experiments.harness.spread import NAMES
from clustercaps.experiments.paper import paper
from clustercaps.models.registry import count_parameters
from clustercaps.utils.plotting import PAGE, add_legend, new_figure, style_of, styled

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


@styled
def figure(rows: Sequence[Row], _: str) -> "Figure":
    """How far each count is from the printed one, by dataset; hollow where they do not match."""
    drawn = new_figure(PAGE, 2.6)
    ax = drawn.subplots()
    counted: dict[str, dict[str, Row]] = {}
    for row in rows:
        model, data = row["cell"].split("/")
        counted.setdefault(model, {})[data] = row
    sets = list(dict.fromkeys(data for mine in counted.values() for data in mine))
    for number, data in enumerate(sets):
        colour, marker = style_of(number)
        ax.plot([], [], marker, ms=3.5, color=colour, label=NAMES.get(data, data.upper()))
        for place, mine in enumerate(counted.values()):
            if data in mine:
                # Side by side: most differences are close to zero.
                shift = 0.23 * (list(mine).index(data) - (len(mine) - 1) / 2)
                fill = colour if mine[data]["verdict"] == "fits" else "white"
                off = mine[data]["percent_off"]
                ax.plot(place + shift, off, marker, ms=3.5, mec=colour, mfc=fill)
    ax.plot([], [], "o", ms=3.5, mec="0.3", mfc="white", label="hollow: does not match")
    finish(ax, list(counted))
    for tick in ax.get_xticklabels():
        tick.set(rotation=45, ha="right", rotation_mode="anchor")
    ax.axhline(0, color="0.5", lw=0.8, zorder=0)
    ax.set_ylabel("difference from\nthe printed count (%)")
    add_legend(drawn, len(sets) + 1)
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
