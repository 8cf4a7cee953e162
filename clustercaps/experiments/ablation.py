"""Data-dependent routing weights ("cluster") against constant ones ("uniform").

`full` is the paper's table: M1-M4 on CIFAR-10, 300 epochs, three seeds.

`night` trains M1 on all of CIFAR-10, 64 epochs of the strong recipe, three seeds: about an hour for
each run on one thread. Those with data-dependent weights are runs of the classification table.

`quick` trains M1 and M2 on `fashion-mnist-mini`, 6 epochs of the fast recipe, three seeds.
Estimate: 157 steps per epoch at 65 ms (M1) and 105 ms (M2) for either routing, so 12 runs of 61 to
99 s: 16 minutes on two cores.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.classification import LONG, LONG_EPOCHS
from clustercaps.experiments.harness.cells import Cell, Experiment, Row
from clustercaps.experiments.harness.findings import Finding, below, judge
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.plots import error_figure
from clustercaps.experiments.harness.spread import set_title, spreads
from clustercaps.experiments.harness.training_cells import training
from clustercaps.experiments.paper import paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUTINGS = {"cluster": "data-dependent", "uniform": "constant"}


def cells(budget: str) -> list[Cell]:
    """Networks with both routings, on the same images for the same number of steps."""
    if budget == "full":
        return [
            training(f"{m}/{r}", m, "cifar10", "paper", model_settings={"routing": r})
            for m in paper()["ablation"]
            for r in ROUTINGS
        ]
    if budget == "night":
        twin = ("classification", f"{LONG}/cifar10")
        constant = {"routing": "uniform"}
        run = partial(training, model="m1", data="cifar10", recipe="strong", epochs=LONG_EPOCHS)
        return [run("m1/cluster", same_as=twin), run("m1/uniform", model_settings=constant)]
    models = ("m1", "m2") if budget == "quick" else ("m1",)
    tiny = {} if budget == "quick" else {"dim": 2, "votes": 4}
    size: dict[str, Any] = {"epochs": 6}
    if budget == "smoke":
        size = {"epochs": 1, "limit": 64, "batch_size": 32}
    return [
        training(
            f"{model}/{routing}",
            model,
            "fashion-mnist-mini",
            "fast",
            model_settings={"routing": routing, **tiny},
            **size,
        )
        for model in models
        for routing in ROUTINGS
    ]


def table(rows: Sequence[Row], _: str) -> str:
    """One row per network: our errors with both routings, and the paper's."""
    errors = spreads(rows)
    lines = []
    for model, printed in paper()["ablation"].items():
        ours = {routing: errors.get(f"{model}/{routing}") for routing in ROUTINGS}
        if any(ours.values()):
            shown = [str(spread or "") for spread in ours.values()]
            lines.append([model, *shown, *(f"{printed[routing]:.2f}" for routing in ROUTINGS)])
    header = [f"{name}, error %" for name in ROUTINGS.values()]
    header += [f"paper, {name}, CIFAR-10, error %" for name in ROUTINGS.values()]
    return markdown_table(["network", *header], lines)


def figure(rows: Sequence[Row], budget: str) -> "Figure":
    """Both routings side by side for every network."""
    errors = spreads(rows)
    models = list(dict.fromkeys(id.split("/")[0] for id in errors))
    panel = {
        name: {m.upper(): errors[f"{m}/{r}"] for m in models if f"{m}/{r}" in errors}
        for r, name in ROUTINGS.items()
    }
    printed = {
        name: {m.upper(): paper()["ablation"][m][r] for m in models} for r, name in ROUTINGS.items()
    }
    title = set_title(rows[0])
    return error_figure(
        {title: panel}, "network", printed={title: printed} if budget in ("night", "full") else {}
    )


def finding(rows: Sequence[Row]) -> Finding | None:
    """Whether data-dependent routing has lower error, network by network."""
    errors = spreads(rows)
    pairs = {
        model.upper(): tuple(errors[f"{model}/{routing}"] for routing in ROUTINGS)
        for model in paper()["ablation"]
        if all(f"{model}/{routing}" in errors for routing in ROUTINGS)
    }
    evidence = [f"{model} {ours} vs. {constant} %" for model, (ours, constant) in pairs.items()]
    claim = "networks with data-dependent routing weights have far lower error than with constant "
    claim += "ones."
    return judge(claim, [below(*pair) for pair in pairs.values()], evidence)


EXPERIMENT = Experiment(
    title="Ablation: data-dependent routing",
    cells=cells,
    table=table,
    figure=figure,
    finding=finding,
    notes="""\
With constant weights a layer is an ordinary convolution, so the network is linear except for its
layer norm: this is what the paper's ablation removes. Both routings use the same parameters,
images, image order and number of steps. The quick budget uses Fashion-MNIST, where a nearly linear
network does far better than on the photographs of CIFAR-10, so expect a smaller gap than in the
paper.""",
)
