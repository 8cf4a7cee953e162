"""Does each dimension of a class capsule represent one property of the digit?

Networks with one capsule per class learn to classify MNIST and to reconstruct its images from the
capsule of their class. Each dimension of that capsule is varied in 11 steps in [-0.25, 0.25], as in
the paper, and within 2 standard deviations of the dimension, and the change of the reconstruction
is measured. So is that of the best direction of every property, fitted on other images. Images are
28x28, and networks have their published sizes.

`full` trains cluster routing for 300 epochs with the paper's recipe and the other networks with
their own recipes, three seeds, and measures 2,000 test images.

`night` trains on all of MNIST, cluster routing for 20 epochs of the strong recipe, the others for 5
epochs of their own recipes, one seed: 15, 80 and 35 minutes on two cores.

`quick` trains on 10,000 images for 6 epochs, one seed, all with adaptive optimizers, and measures
1,000 test images. Estimate: 942 steps of 64 images at 50 ms for cluster routing and 1 s for dynamic
routing, 600 of 100 at 630 ms for attention routing, so 47, 940 and 380 s: 24 minutes on two cores,
including testing and reconstruction.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from clustercaps.experiments.harness.cells import ONE_SEED, Cell, Experiment, Row
from clustercaps.experiments.harness.digit_properties import PROPERTIES
from clustercaps.experiments.harness.disentangling import DEVIATIONS, REACH, look
from clustercaps.experiments.harness.findings import Finding, judge
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.measured_cells import measured_training
from clustercaps.experiments.harness.pictures import mosaic, unpack
from clustercaps.experiments.harness.spread import first_rows, spreads
from clustercaps.utils.plotting import COLUMN, PAGE, TINY, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

MODELS = {
    "class_capsules": "cluster routing",
    "capsnet": "dynamic routing",
    "ar_capsnet": "attention routing",
}
# In the figure: dimensions, steps of both ranges, and the width of an effect, in reconstructions.
TOP, CELL = 8, 0.6
NARROW = {0: f"\u2212{REACH}", 10: f"+{REACH}"}
WIDE = {0: f"\u2212{DEVIATIONS} sd", 5: "0", 10: f"+{DEVIATIONS} sd"}
STRIPS = ("strips", "fitted_strips")
SECOND = (
    "The same within 2 standard deviations of each dimension, and directions fitted to one "
    "property on half of the images, tested on the other half:"
)
# Adaptive, as in the other recipes: after 79 steps of the fast recipe, reconstructions were still
# grey.
ADAM = {"optimizer": "adam", "lr": 1e-3, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}


def cells(budget: str) -> list[Cell]:
    """One cell per network."""
    return [cell(model, budget) for model in MODELS]


def cell(model: str, budget: str) -> Cell:
    """Train a network and vary the dimensions of its capsules."""
    options = {"images": 2000, "random_directions": 100}
    size: dict[str, Any] = {}
    if budget in ("night", "full"):
        recipe = "paper"
        if budget == "night":
            recipe, epochs = ("strong", 20) if model == "class_capsules" else ("paper", 5)
            size = {"epochs": epochs}
        # Dynamic routing is trained for the reconstructions, too.
        twin = ("affine", model) if model == "capsnet" else None
        return measured_training(model, model, "mnist", recipe, look, options, twin, **size)
    data = "mnist" if budget == "quick" else "fashion-mnist-mini"
    narrow: dict[str, dict[str, Any]]
    if budget == "quick":
        options["images"] = 1000
        size = {"epochs": 6, "limit": 10_000, "augment": False}
        narrow = {}
        if model == "capsnet":
            size["batch_size"] = 64
        elif model == "class_capsules":
            size |= ADAM
    else:
        options = {"images": 40, "random_directions": 4}
        size = {"epochs": 1, "limit": 64, "batch_size": 32}
        narrow = {
            "class_capsules": {"dim": 3},
            "capsnet": {"width": 8, "types": 2, "dim": 4},
            "ar_capsnet": {"width": 4, "types": 2, "primary_dim": 4, "dim": 4},
        }
    network = narrow.get(model, {})
    return measured_training(
        model, model, data, "fast", look, options, model_settings=network, **size
    )


def in_order(rows: Sequence[Row]) -> dict[str, Row]:
    """The row of the first seed of every network."""
    found = first_rows(rows)
    return {model: found[model] for model in MODELS if model in found}


def table(rows: Sequence[Row], _: str) -> str:
    """One row per network: concentration of its dimensions and of random directions."""
    columns = (
        *("drawn_mse", "capsule_length", "concentration", "random_concentration"),
        *("above_random_fraction", "effect", "random_effect"),
    )
    found = {column: spreads(rows, column) for column in columns}
    errors = spreads(rows)
    lines = []
    for model, row in in_order(rows).items():
        means = {column: found[column][model].mean for column in columns}
        percent = f"{100 * means.pop('above_random_fraction'):.1f}"
        shown = [f"{value:.3f}" for value in means.values()]
        about = [MODELS[model], str(row["capsule_dim"]), str(errors[model])]
        lines.append([*about, *shown[:4], percent, *shown[4:]])
    header = ["network", "capsule dimension", "error %", "reconstruction MSE", "capsule length"]
    header += ["concentration, dimensions", "concentration, random directions"]
    header += ["dimensions above 95 of 100 random directions, %"]
    header += ["effect, dimensions", "effect, random directions"]
    return f"{markdown_table(header, lines)}\n\n{SECOND}\n\n{second_table(rows)}"


def second_table(rows: Sequence[Row]) -> str:
    """One row per network: its dimensions and fitted directions at 2 standard deviations."""
    columns = (
        *("dimension_sd", "wide_effect", "wide_concentration", "wide_random_concentration"),
        *("axis_share", "fitted_share", "rotated_share"),
    )
    found = {column: spreads(rows, column) for column in columns}
    above = spreads(rows, "wide_above_random_fraction")
    lines = []
    for model, row in in_order(rows).items():
        means = [f"{found[column][model].mean:.3f}" for column in columns]
        linear = ", ".join(f"{value:.2f}" for value in json.loads(row["explained"]))
        percent = f"{100 * above[model].mean:.1f}"
        lines.append([MODELS[model], *means[:4], percent, *means[4:], linear])
    header = ["network", "sd of a dimension", "effect, dimensions", "concentration, dimensions"]
    header += ["concentration, random directions"]
    header += ["dimensions above 95 of 100 random directions, %"]
    header += ["share of one property: best dimension", "fitted direction", "axis after rotation"]
    header += [f"linearly explained: {', '.join(PROPERTIES)}"]
    return markdown_table(header, lines)


@styled
def figure(rows: Sequence[Row], _: str) -> "Figure":
    """Per network, reconstructions along dimensions and fitted directions, and their effects."""
    shown = in_order(rows)
    kept = min(TOP, *(row["capsule_dim"] for row in shown.values()))
    width = COLUMN if len(shown) == 1 else PAGE
    # In units of a reconstruction: both ranges, and the effects.
    ratios = [len(NARROW) + 1, len(WIDE) + 1, CELL * len(PROPERTIES)]
    # Inches: what the names of the rows leave, without the space between panels.
    tile = (width - 0.6 - 0.3 * len(shown)) / (len(shown) * sum(ratios))
    figure = new_figure(width, tile * (kept + len(PROPERTIES)) + 1.6)
    axes = figure.subplots(1, 3 * len(shown), squeeze=False, width_ratios=ratios * len(shown))[0]
    for number, (model, row) in enumerate(shown.items()):
        narrow, wide, heat = axes[3 * number : 3 * number + 3]
        sizes = torch.tensor(json.loads(row["wide_effects"]))
        # As many dimensions for every network: those that change most.
        dims = sizes.sum(1).topk(kept).indices.sort().values
        for ax, prefix, steps in ((narrow, "", NARROW), (wide, "wide_", WIDE)):
            strips, fitted = (unpack(row[f"{prefix}{name}"]) for name in STRIPS)
            changes = draw_pictures(ax, torch.cat([strips[dims], fitted]), kept, steps)
        values = torch.cat([sizes[dims], torch.tensor(json.loads(row["fitted_effects"]))])
        effects = draw_effects(heat, values, kept)
        names = [*(str(int(d) + 1) for d in dims), *(PROPERTIES if number == 0 else [""] * 5)]
        narrow.set_yticks([n + 0.5 for n in range(len(names))], names)
        narrow.set_title(MODELS[model], loc="left")
    for text, row_number in (("dimension", kept / 2), ("fitted direction", kept + 2.5)):
        place: dict[str, Any] = {"xytext": (-40, 0), "textcoords": "offset points"}
        place |= {"ha": "center", "va": "center", "annotation_clip": False}
        axes[0].annotate(text, (0, row_number), rotation=90, **place)
    for image, label in (
        (effects, "change of a property (unit: below each panel)"),
        (changes, "change of the reconstruction (unit: below each panel)"),
    ):
        bar = figure.colorbar(image, ax=list(axes), location="bottom", aspect=15 * width, pad=0.01)
        bar.set_label(label, fontsize=TINY)
        bar.ax.tick_params(labelsize=TINY, length=2)
    return figure


def draw_pictures(
    ax: "Axes",
    pictures: Float[Tensor, "rows steps height width"],
    kept: int,
    steps: Mapping[int, str],
) -> "AxesImage":
    """Rows of reconstructions along a range, and the change from its beginning to its end."""
    rows, columns = len(pictures), len(steps)
    extent = (0.0, float(columns), float(rows), 0.0)
    ax.imshow(
        mosaic(pictures[:, list(steps)]).numpy(), cmap="gray_r", vmin=0, vmax=1, extent=extent
    )
    change = pictures[:, -1] - pictures[:, 0]
    largest = float(change.abs().max())
    extent = (columns, columns + 1.0, float(rows), 0.0)
    shown = (mosaic(change[:, None]) / max(largest, 1e-9)).numpy()
    image = ax.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1, extent=extent)
    finish_panel(ax, kept, {n + 0.5: name for n, name in enumerate([*steps.values(), "change"])})
    ax.set_xlim(0, columns + 1)
    ax.set_xlabel(f"1 is {largest:.2f}", fontsize=TINY, loc="right")
    return image


def draw_effects(ax: "Axes", values: Float[Tensor, "rows 5"], kept: int) -> "AxesImage":
    """A heat map of effects; each network has its own scale, since capsule lengths differ."""
    extent = (0.0, CELL * len(PROPERTIES), float(len(values)), 0.0)
    share = (values / values.max()).numpy()
    image = ax.imshow(share, cmap="Blues", vmin=0, vmax=1, extent=extent)
    finish_panel(ax, kept, {CELL * (n + 0.5): name for n, name in enumerate(PROPERTIES)})
    ax.set_xlabel(f"1 is {values.max():.2g} sd", fontsize=TINY)
    return image


def finish_panel(ax: "Axes", kept: int, names: Mapping[float, str]) -> None:
    """The same rows in every panel: dimensions, a line, and fitted directions; names on top."""
    ax.set_ylim(kept + len(PROPERTIES), 0)
    ax.axhline(kept, color="black", lw=0.8)
    ax.xaxis.tick_top()
    ax.set_xticks(list(names), list(names.values()), rotation=90)
    ax.set_yticks([])
    ax.tick_params(labelsize=TINY, length=0, pad=2)
    ax.spines[:].set_visible(False)


def finding(rows: Sequence[Row]) -> Finding | None:
    """Whether dimensions of cluster routing stand out more than random directions, and most do.

    By chance 5 in 100 do; of the 80 dimensions of ten capsules, 1 in 10 is still within the noise.
    """
    fractions = spreads(rows, "above_random_fraction")
    ours = fractions.get("class_capsules")
    if ours is None:
        return None
    shown = [f"{MODELS[m]} {100 * fractions[m].mean:.1f} %" for m in MODELS if m in fractions]
    evidence = "dimensions more concentrated on one property than 95 of 100 random directions: "
    evidence += ", ".join(shown)
    claim = "each dimension of a class capsule represents one property of the digit."
    found = [evidence, "5 % is expected by chance"]
    if all("fitted_share" in row for row in rows):
        best, fitted = (spreads(rows, f"{name}_share") for name in ("axis", "fitted"))
        found.append(
            "share of one property in the effects of cluster routing's best dimension "
            f"{best['class_capsules'].mean:.2f}, of a fitted direction "
            f"{fitted['class_capsules'].mean:.2f}"
        )
    return judge(claim, [ours.mean > 0.1, ours.mean > 0.5], found)


EXPERIMENT = Experiment(
    title="Disentangled dimensions",
    cells=cells,
    table=table,
    figure=figure,
    finding=finding,
    seeds=ONE_SEED,
    notes="""\
The paper shows reconstructions and calls them disentangled; here this is measured. An effect is the
change of a property of the reconstruction (stroke thickness, slant, width, height, area) from one
end of a dimension to the other, averaged over the images of a class and in units of the property's
standard deviation over real images. Concentration is the largest of the five effects divided by
their sum: 1 if a dimension changes a single property, a fifth if it changes all equally. Properties
are correlated (thicker digits have more area), so the value is only meaningful next to the control,
random directions of the same length: if dimensions are special, more than 5 in 100 of them are
above 95 of 100 random directions. The claim counts as holding if most do and as partly holding if
more than 10 in 100 do; this rule was set after the results of the night budget were known, and the
one before called 5 to 10 in 100 inconclusive. Capsule lengths differ between the three networks, so
the same step is a different fraction of them: compare concentrations, not effects, between
networks. The second table uses 2 standard deviations of each dimension over the images of a class
instead of `0.25`. A capsule space can be rotated without changing the network, so properties may
lie along other directions than its axes: a fitted direction changes, to first order, a single
property, and its share of the intended property is measured on images that it was not fitted on,
next to that of the best dimension and of the nearest orthonormal directions (axes after a
rotation). Linearly explained is the fraction of a property's variance within classes that a linear
map of the capsule predicts on such images. The figure shows one test image, the eight dimensions
that change most within 2 standard deviations, the fitted directions below the line, and the size of
the effects, averaged over classes, for the first seed, with a separate scale for each network. The
weight of the reconstruction loss is ours for cluster routing, and that of the original papers for
the others. The quick budget trains cluster routing with Adam, at the learning rate of dynamic
routing's recipe.""",
)
