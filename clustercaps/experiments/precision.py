"""M1 trained in bfloat16 and in float32: the same images, steps and seeds, so equal errors?

`night` trains on all of Fashion-MNIST for 12 epochs of the strong recipe, two seeds; `full` for the
60 epochs of the recipe, three seeds. Estimate: an epoch takes 55 s in float32 and 41 s in bfloat16
on one thread of an AMD EPYC (Zen 5), so 40 minutes for the four runs of `night` on one thread.
`quick` is 6 epochs of `fashion-mnist-mini`, a minute per run.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.cells import Cell, Experiment, Row
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.plots import error_figure
from clustercaps.experiments.harness.spread import set_title, spreads
from clustercaps.experiments.harness.training_cells import training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Precisions as in the settings of a run, and as usually written.
PRECISIONS = {"float32": "float32", "bf16": "bfloat16"}


def cells(budget: str) -> list[Cell]:
    """M1 with both precisions."""
    size: dict[str, Any] = {"night": {"epochs": 12}, "quick": {"epochs": 6}}.get(budget, {})
    data = "fashion-mnist" if budget in ("night", "full") else "fashion-mnist-mini"
    if budget == "smoke":
        tiny = {"dim": 2, "votes": 4}
        size = {"epochs": 1, "limit": 64, "batch_size": 32, "model_settings": tiny}
    return [
        training(precision, "m1", data, "strong", precision=precision, **size)
        for precision in PRECISIONS
    ]


def table(rows: Sequence[Row], _: str) -> str:
    """One row per precision, with the error of every seed."""
    errors, train = spreads(rows), spreads(rows, "train_error")
    seconds = spreads(rows, "train_seconds")
    lines = [
        [
            name,
            str(errors[id]),
            ", ".join(f"{value:.2f}" for value in errors[id].values),
            str(train[id]),
            f"{seconds[id].mean:.0f}",
        ]
        for id, name in PRECISIONS.items()
        if id in errors
    ]
    header = ["precision", "error %", "seeds, error %", "training error %", "seconds per run"]
    return markdown_table(header, lines)


def figure(rows: Sequence[Row], _: str) -> "Figure":
    """Both precisions side by side."""
    errors = spreads(rows)
    shown = {name: errors[id] for id, name in PRECISIONS.items() if id in errors}
    return error_figure({set_title(rows[0]): {"M1": shown}}, "precision")


EXPERIMENT = Experiment(
    title="Training in bfloat16",
    cells=cells,
    table=table,
    figure=figure,
    seeds={"smoke": (0,), "quick": (0, 1), "night": (0, 1), "full": (0, 1, 2)},
    notes="""\
This experiment is not in the paper. With `--precision bf16`, the fused kernel multiplies in
bfloat16 on processors that have the instruction; sums, statistics, routing and gradients stay in
float32. Runs of one seed see the same images in the same order.""",
)
