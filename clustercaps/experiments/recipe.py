"""Which recipe trains M1 best in a fixed number of epochs, on a validation split of Fashion-MNIST.

No test images are used. `night` trains every candidate for 16 epochs on four fifths of the training
set and validates on the remaining fifth, one seed; `full` uses three seeds. Estimate: 750 steps per
epoch at 90 ms on one thread, so 18 minutes per candidate, with two in parallel on two cores.
`quick` is 2 epochs of `fashion-mnist-mini`: too short for a ranking, it shows what is compared.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.cells import ONE_SEED, Cell, Experiment, Row
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.plots import line_figure
from clustercaps.experiments.harness.spread import set_title, spreads
from clustercaps.experiments.harness.training_cells import training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Settings that every candidate starts from.
BASE: dict[str, Any] = {
    "batch_size": 64,
    "optimizer": "muon",
    "lr": 0.02,
    "adamw_lr": 2e-3,
    "schedule": "cosine",
    "warmup_epochs": 0.5,
    "momentum": 0.95,
    "nesterov": True,
    "weight_decay": 0.02,
    "label_smoothing": 0.1,
    "average": 0.999,
}
CANDIDATES: dict[str, dict[str, Any]] = {
    "base": {},
    "erase-0.5": {"erase": 0.5},
    "alternating-flips": {"flips": "alternating"},
    "decay-0.2": {"weight_decay": 0.2},
    "no-smoothing": {"label_smoothing": 0.0},
    "linear": {"schedule": "linear"},
    "lr-0.04": {"lr": 0.04},
    "lr-0.01": {"lr": 0.01},
    "batch-128": {"batch_size": 128, "lr": 0.03, "adamw_lr": 3e-3},
    "adamw": {"optimizer": "adamw", "lr": 2e-3, "momentum": 0.0, "nesterov": False},
}
# Existing recipes; only the number of epochs is changed.
RECIPES = ("fast", "paper")


def cells(budget: str) -> list[Cell]:
    """One training run per candidate and per existing recipe."""
    size: dict[str, Any] = {"epochs": 16, "validate": True}
    data, candidates = "fashion-mnist", CANDIDATES
    if budget in ("smoke", "quick"):
        data = "fashion-mnist-mini"
        size["epochs"] = 2
    if budget == "smoke":
        candidates = {"base": {}, "erase-0.5": CANDIDATES["erase-0.5"]}
        tiny = {"dim": 2, "votes": 4}
        size |= {"limit": 64, "batch_size": 32, "test_limit": 40, "model_settings": tiny}
    found = [
        training(name, "m1", data, "strong", **{**BASE, **changes, **size})
        for name, changes in candidates.items()
    ]
    return [*found, *(training(name, "m1", data, name, **size) for name in RECIPES)]


def table(rows: Sequence[Row], _: str) -> str:
    """One row per candidate."""
    errors, train = spreads(rows), spreads(rows, "train_error")
    lines = [[id, changed(id), str(errors[id]), str(train[id])] for id in order() if id in errors]
    header = ["candidate", "differs from base by", "validation error %", "training error %"]
    return markdown_table(header, lines)


def order() -> list[str]:
    """All candidates."""
    return [*CANDIDATES, *RECIPES]


def changed(id: str) -> str:
    """The settings that a candidate changes, as on the command line."""
    if id in RECIPES:
        return f"`--recipe {id}`"
    return ", ".join(f"`{name} {value}`" for name, value in CANDIDATES[id].items())


def figure(rows: Sequence[Row], _: str) -> "Figure":
    """Validation errors of all candidates."""
    errors = spreads(rows)
    shown = {id: errors[id] for id in order() if id in errors}
    return line_figure({"M1": shown}, list(shown), set_title(rows[0]), "validation error (%)")


EXPERIMENT = Experiment(
    title="Choice of recipe",
    cells=cells,
    table=table,
    figure=figure,
    seeds=ONE_SEED,
    notes="""\
This experiment is not in the paper. The table lists every run that was tried, including the worse
ones; test images were not used. With 12,000 validation images and one seed, differences below about
`0.3` percentage points may be due to chance.""",
)
