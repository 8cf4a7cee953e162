"""Do routing weights depend on the image? A bar plot of them by class, and a test.

Networks with one capsule per class on MNIST. For each capsule and dimension, the weights of its
vote clusters are compared between and within classes, for cluster routing, for uniform routing and
for an untrained network. Images are 28x28.

`full` trains for 300 epochs with the paper's recipe, three seeds, and measures all 10,000 test
images.

`night` trains on all of MNIST for 20 epochs of the strong recipe, three seeds: half an hour per run
on one thread.

`quick` trains on 10,000 images for 4 epochs of the fast recipe, three seeds, and measures 2,000
test images. Estimate: 157 steps per epoch at about 100 ms for either routing, so 6 runs of 63 s: 7
minutes on two cores.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot

from clustercaps.experiments.harness.cells import Cell, Experiment, Row
from clustercaps.experiments.harness.findings import Finding, judge
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.measured_cells import (
    View,
    measured_training,
    rounded,
    untrained,
)
from clustercaps.experiments.harness.spread import first_rows, spreads
from clustercaps.models import ClassCapsuleNet
from clustercaps.utils.plotting import PAGE, add_legend, add_note, new_figure, style_of, styled
from clustercaps.utils.progress import with_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELLS = {
    "cluster": "cluster routing",
    "uniform": "uniform routing",
    "untrained": "cluster routing, untrained",
}
MODEL = "class_capsules"
# Capsule channel and dimension of the paper's two plots, starting at 1.
PLOTTED = ((1, 8), (2, 2))
BATCH = 250


def cells(budget: str) -> list[Cell]:
    """Both routings after training, and cluster routing before it."""
    data, recipe = "mnist", "fast"
    options: dict[str, Any] = {"images": 2000, "shuffles": 99}
    network: dict[str, Any] = {}
    if budget == "full":
        recipe, size = "paper", {}
        options["images"] = 10_000
    elif budget == "night":
        recipe, size = "strong", {"epochs": 20}
        options["images"] = 10_000
    elif budget == "quick":
        size = {"epochs": 4, "limit": 10_000}
    else:
        data, network = "fashion-mnist-mini", {"dim": 2, "votes": 4}
        size = {"epochs": 1, "limit": 64, "batch_size": 32}
        options = {"images": 100, "shuffles": 9}
    networks: dict[str, dict[str, Any]]
    networks = {routing: {"routing": routing, **network} for routing in ("cluster", "uniform")}
    twin = None
    if budget in ("night", "full"):
        # The default network is also the one whose dimensions are varied.
        networks["cluster"], twin = {}, ("disentangle", MODEL)
    trained = [
        measured_training(
            routing,
            MODEL,
            data,
            recipe,
            look,
            options,
            twin if routing == "cluster" else None,
            model_settings=changes,
            **size,
        )
        for routing, changes in networks.items()
    ]
    return [*trained, untrained("untrained", MODEL, data, look, options, network)]


def look(view: View, options: Mapping[str, Any], chance: torch.Generator) -> Row:
    """Variance between classes over variance within classes, for true and shuffled labels."""
    weights = last_weights(view)
    ratios = variance_ratios(weights, view.labels)
    shuffled = torch.stack(
        [
            variance_ratios(weights, view.labels[torch.randperm(len(weights), generator=chance)])
            for _ in range(options["shuffles"])
        ]
    )
    # Above all shuffles: by chance in one of `shuffles + 1` cases.
    limits = shuffled.amax(0)
    return {
        **{"looked_at": len(weights), "shuffles": options["shuffles"]},
        **{"capsule_dims": ratios.numel(), "above_shuffled": int((ratios > limits).sum())},
        "variance_ratio": float(ratios.median()),
        "shuffled_ratio": float(shuffled.median()),
        "weight_sd": float(weights.std(0).mean()),
        "ratios": rounded(ratios.flatten()),
        "limits": rounded(limits.flatten()),
        "bars": [bars(weights, view.labels, place) for place in PLOTTED],
    }


def last_weights(view: View) -> Float[Tensor, "images clusters channels dim"]:
    """Routing weights of the last layer, which has one capsule per channel; no other is traced."""
    assert isinstance(view.model, ClassCapsuleNet)
    *others, last = view.model.capsules.layers
    parts = []
    for images in with_bar(view.images.split(BATCH), "routing weights"):
        _, seen = last(nn.Sequential(*others)(images.unsqueeze(1)), trace=True)
        parts.append(seen.weights.flatten(3))
    return torch.cat(parts).double()


def variance_ratios(
    weights: Float[Tensor, "images clusters channels dim"], labels: Int[Tensor, " images"]
) -> Float[Tensor, "channels dim"]:
    """Variance of the class means over the variance within classes, summed over vote clusters.

    0 where the weights do not vary at all.

    Args:
        weights: Routing weights of every image.
        labels: The classes of the images.
    """
    members = one_hot(labels).to(weights.dtype)
    counts = members.sum(0)
    means = (
        torch.einsum("nk,nicd->kicd", members, weights) / counts.clamp(min=1)[:, None, None, None]
    )
    overall = weights.mean(0)
    between = torch.einsum("k,kicd->cd", counts, (means - overall).square())
    within = (weights - means[labels]).square().sum((0, 1))
    # Rounding errors of a constant weight are smaller.
    varies = between + within > 1e-10 * len(weights)
    return torch.where(varies, between / within.clamp(min=1e-30), torch.zeros_like(between))


def bars(
    weights: Float[Tensor, "images clusters channels dim"],
    labels: Int[Tensor, " images"],
    place: tuple[int, int],
) -> dict[str, Any]:
    """Mean and standard deviation of the weights of one capsule dimension, by class.

    Args:
        weights: Routing weights of every image.
        labels: The classes of the images.
        place: Channel and dimension, starting at 1; the last ones if the network has fewer.
    """
    channel, dim = (min(n, size) for n, size in zip(place, weights.shape[2:], strict=True))
    chosen = weights[:, :, channel - 1, dim - 1]
    groups = [chosen[labels == label] for label in labels.unique()]
    return {
        **{"channel": channel, "dim": dim},
        "mean": rounded(torch.stack([group.mean(0) for group in groups])),
        "sd": rounded(torch.stack([group.std(0, correction=0) for group in groups])),
    }


def in_order(rows: Sequence[Row]) -> dict[str, Row]:
    """The row of the first seed of every network."""
    found = first_rows(rows)
    return {id: found[id] for id in CELLS if id in found}


def table(rows: Sequence[Row], _: str) -> str:
    """One row per network: the ratio, and how many capsule dimensions pass the test."""
    names = ("variance_ratio", "shuffled_ratio", "above_shuffled", "weight_sd")
    columns = {name: spreads(rows, name) for name in names}
    errors = spreads([row for row in rows if "test_error" in row])
    lines = []
    for id, row in in_order(rows).items():
        passed = columns["above_shuffled"][id].values
        lines.append(
            [
                CELLS[id],
                str(errors.get(id, "")),
                *(f"{columns[name][id].mean:.4f}" for name in names[:2]),
                f"{', '.join(f'{count:.0f}' for count in passed)} of {row['capsule_dims']}",
                f"{columns['weight_sd'][id].mean:.4f}",
            ]
        )
    header = [
        "network",
        "error %",
        "between / within variance (median)",
        "same with shuffled labels",
    ]
    header += ["capsule dimensions above all shuffles, by seed", "sd of a weight over images"]
    return markdown_table(header, lines)


@styled
def figure(rows: Sequence[Row], _: str) -> "Figure":
    """Bars of two capsule dimensions by class, and all ratios sorted, for each network."""
    shown = in_order(rows)
    drawn = new_figure(PAGE, 1.55 * len(shown) + 0.6)
    grid = drawn.subplots(len(shown), 3, squeeze=False, width_ratios=(1.35, 1.35, 1))
    for line, (id, row) in zip(grid, shown.items(), strict=True):
        # Short, so that titles side by side do not touch.
        name = CELLS[id].split(", ")[-1]
        for ax, plotted in zip(line[:2], json.loads(row["bars"]), strict=True):
            draw_bars(ax, plotted)
            title = f"{name}: capsule {plotted['channel']}, dim. {plotted['dim']}"
            ax.set_title(title)
        line[0].set_ylabel("routing weight")
        draw_ratios(line[2], json.loads(row["ratios"]), json.loads(row["limits"]))
        line[2].set_title(f"{name}: all {row['capsule_dims']}")
    # One scale, so that networks can be compared.
    top = max(0.1, *(max(json.loads(row["ratios"])) for row in shown.values()))
    for ax in grid[:, 2]:
        ax.set_ylim(-0.002, 2 * top)
    for ax in grid[-1, :2]:
        ax.set_xlabel("class of the image")
    grid[-1, 2].set_xlabel("capsule dimensions, sorted")
    add_legend(drawn, 6)
    add_note(drawn, "bars, in the order of the vote clusters: mean over images; lines: one sd")
    return drawn


def draw_bars(ax: "Axes", plotted: Mapping[str, Any]) -> None:
    """Mean weight of each vote cluster by class, with the standard deviation over the images."""
    means, deviations = torch.tensor(plotted["mean"]), torch.tensor(plotted["sd"])
    classes, clusters = means.shape
    width = 0.8 / clusters
    for cluster in range(clusters):
        places = [n + (cluster - (clusters - 1) / 2) * width for n in range(classes)]
        ax.bar(
            places,
            means[:, cluster].tolist(),
            width,
            yerr=deviations[:, cluster].tolist(),
            color=style_of(cluster)[0],
            error_kw={"lw": 0.5, "capsize": 0},
            label=f"vote cluster {cluster + 1}",
        )
    ax.set_xticks(range(classes))
    ax.set_ylim(0, max(0.6, float((means + deviations).max()) * 1.05))


def draw_ratios(ax: "Axes", ratios: Sequence[float], limits: Sequence[float]) -> None:
    """The ratios of all capsule dimensions, sorted, and those of shuffled labels."""
    order = sorted(range(len(ratios)), key=lambda n: ratios[n])
    places = range(1, len(order) + 1)
    ax.plot(places, [ratios[n] for n in order], ".", ms=3, color="black", label="true labels")
    shuffled = [limits[n] for n in order]
    ax.plot(places, shuffled, "-", lw=0.8, color="0.55", label="shuffled labels, maximum")
    # Linear up to the level of shuffled labels, so that a ratio of 0 can be shown.
    ax.set_yscale("symlog", linthresh=0.01)
    ax.set_ylabel("between / within\nvariance")


def finding(rows: Sequence[Row]) -> Finding | None:
    """Whether the weights of every capsule dimension distinguish classes better than chance."""
    mine = [row for row in rows if row["cell"] == next(iter(CELLS))]
    if not mine:
        return None
    passed = [row["above_shuffled"] for row in mine]
    every = mine[0]["capsule_dims"]
    ratios = spreads(rows, "variance_ratio")
    evidence = [f"{', '.join(f'{n:.0f}' for n in passed)} of {every} capsule dimensions, by seed"]
    evidence += [f"between / within variance, {CELLS[id]}: {ratios[id].mean:.3f}" for id in ratios]
    claim = "routing weights differ between classes."
    return judge(claim, [count == every for count in passed], evidence)


EXPERIMENT = Experiment(
    title="Routing weights depend on the image",
    cells=cells,
    table=table,
    figure=figure,
    finding=finding,
    notes="""\
The paper shows bars for two capsule dimensions and concludes by eye; here all dimensions are
tested. The ratio is the variance of the weights between classes divided by the variance within
classes, summed over the vote clusters of a capsule dimension. A dimension passes if its ratio is
above that of every shuffle of the labels; by chance, one in (shuffles + 1) passes. Passing shows
that the weights distinguish classes, not that this was learned: the weights of an untrained network
depend on the image too, since its votes do, so the effect of training shows in the size of the
ratio. Uniform routing is a control that cannot pass. Bars are means over the test images of a
class, lines their standard deviation, for the first seed. Strides and padding of the network are
ours, and the network also learns to reconstruct its input.""",
)
