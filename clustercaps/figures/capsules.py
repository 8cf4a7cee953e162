"""Figures of the votes and routing weights of one capsule layer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clustercaps.figures.panels import as_batch, label_row, show
from clustercaps.layers import RoutingTrace
from clustercaps.models import AffineCapsuleNet, CapsuleNet, ClassCapsuleNet, ImageClassifier
from clustercaps.utils.plotting import COLOURS, COLUMN, PAGE, TINY, add_note, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
@torch.no_grad()
def routing(
    model: ImageClassifier,
    images: Tensor,
    layer: int = 2,
    labels: Sequence[int] | None = None,
    class_names: Sequence[str] | None = None,
) -> "Figure":
    """The capsules of one layer, and the routing weight of each vote cluster, a row per image.

    Args:
        model: A capsule network with cluster or uniform routing.
        images: One image [C, H, W], or a few of them.
        layer: Capsule layer to show, starting at 1.
        labels: Classes of the images; stated next to the predicted ones.
        class_names: Names of the classes; numbers by default.
    """
    images = as_batch(model, images)
    rows = _row_names(model, images, labels, class_names)
    trace = _trace(model, images, layer)
    lengths = (trace.weights * trace.centroids).sum(1).norm(dim=2).cpu()  # [B, C, H, W]
    shares = trace.weights.mean((2, 3)).cpu()  # [B, I, H, W]
    channels, clusters = lengths.shape[1], shares.shape[1]
    columns = 2 + channels + clusters
    figure = new_figure(max(PAGE, 0.5 * columns + 1), 0.6 * len(images) + 1.0)
    # The last row is for the colour bars.
    place = figure.add_gridspec(len(images) + 1, columns, height_ratios=[*[1] * len(images), 0.12])
    grid = [[figure.add_subplot(place[n, m]) for m in range(columns)] for n in range(len(images))]
    for row, axes in enumerate(grid):
        show(axes[0], images[row].cpu().mean(0), "gray_r")
        label_row(axes[0], rows[row])
        for ax, values in zip(axes[1:], lengths[row], strict=False):
            show(ax, values, "viridis", float(lengths.max()))
        for ax, values in zip(axes[1 + channels :], shares[row], strict=False):
            # A diverging colour map: white is the uniform weight 1 / clusters.
            show(ax, values, "RdBu_r", 2 / clusters)
        _draw_weights(axes[-1], shares[row].mean((1, 2)), last=row == len(grid) - 1)
    titles = ["image", *(f"channel {n + 1}" for n in range(channels))]
    titles += [*(f"cluster {n + 1}" for n in range(clusters)), "mean weight"]
    for ax, title in zip(grid[0], titles, strict=True):
        ax.set_title(title, fontsize=TINY)
    parts = {"capsule length": slice(1, 1 + channels), "routing weight": slice(1 + channels, -1)}
    for name, part in parts.items():
        below = figure.add_subplot(place[-1, part])
        bar = figure.colorbar(grid[0][part][0].images[0], cax=below, orientation="horizontal")
        bar.set_label(f"{name}, layer {layer}")
    ticks, names = _even_ticks(clusters)
    bar.set_ticks(ticks, labels=names)
    return figure


def _row_names(
    model: ImageClassifier,
    images: Tensor,
    labels: Sequence[int] | None,
    class_names: Sequence[str] | None,
) -> list[str]:
    """Label and predicted class of every image."""
    names = [str(n) for n in range(model.num_classes)] if class_names is None else class_names
    if len(names) != model.num_classes:
        raise ValueError(f"class_names must name {model.num_classes} classes, got {len(names)}")
    if labels is not None and len(labels) != len(images):
        raise ValueError(f"labels must be those of {len(images)} images, got {len(labels)}")
    predicted = [f"predicted: {names[int(n)]}" for n in model(images).argmax(1)]
    if labels is None:
        return predicted
    return [f"label: {names[int(n)]}\n{found}" for n, found in zip(labels, predicted, strict=True)]


def _even_ticks(clusters: int) -> tuple[list[float], list[str]]:
    """Ticks of an axis of routing weights, and their labels: nothing, uniform, twice as much."""
    return [n / clusters for n in range(3)], [f"{n}/{clusters}" if n else "0" for n in range(3)]


def _draw_weights(ax: "Axes", means: Tensor, last: bool) -> None:
    """Bars of the mean weight of every cluster, and the uniform weight as a dashed line."""
    clusters = len(means)
    ax.bar(range(1, clusters + 1), means.numpy(), color=COLOURS[0], width=0.7)
    ax.axhline(1 / clusters, color="0.3", lw=0.8, ls="--")
    # At most five numbers, so that numbers do not touch.
    ax.set_xticks(range(1, clusters + 1, -(-clusters // 5)))
    ax.set_yticks(*_even_ticks(clusters))
    ax.set_ylim(0, 2 / clusters)
    if last:
        ax.set_xlabel("cluster", fontsize=TINY)
    else:
        ax.set_xticklabels([])
    ax.yaxis.tick_right()
    ax.set_box_aspect(1)
    ax.tick_params(labelsize=TINY, length=2, pad=1)
    ax.spines[:].set_visible(False)


@styled
@torch.no_grad()
def votes(
    model: ImageClassifier,
    image: Tensor,
    layer: int = 2,
    channel: int = 1,
    dim: int = 1,
    position: tuple[int, int] | None = None,
) -> "Figure":
    """The votes of every cluster for one entry of one parent capsule, and their routing weights.

    Args:
        model: A capsule network with cluster or uniform routing.
        image: One image [C, H, W].
        layer: Capsule layer, starting at 1.
        channel: Capsule channel of the parent, starting at 1.
        dim: Capsule dimension of the parent, starting at 1.
        position: Row and column in the feature map, starting at 0; its centre by default.
    """
    trace = _trace(model, as_batch(model, image)[:1], layer)
    sizes = trace.votes.shape[3:]
    row, column = position or (sizes[2] // 2, sizes[3] // 2)
    asked = {"channel": (channel, 1), "dim": (dim, 1), "row": (row, 0), "column": (column, 0)}
    for (name, (value, first)), size in zip(asked.items(), sizes, strict=True):
        if not first <= value < size + first:
            raise ValueError(f"{name} must be {first} to {size + first - 1}, got {value}")
    place = (channel - 1, dim - 1, row, column)
    parts = (trace.centroids, trace.spread, trace.weights)
    centroids, spread, weights = (_entry(part[0], place) for part in parts)
    cast = _entry(trace.votes[0].flatten(0, 1), place).view(len(weights), -1)
    clusters, parent = len(cast), float((weights * centroids).sum())
    figure = new_figure(COLUMN, 0.3 * clusters + 1.2)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2, 1))
    left.axvline(parent, color=COLOURS[1], lw=1, label=f"parent {parent:.3f}")
    _draw_votes(left, cast, centroids, spread)
    right.barh(range(1, clusters + 1), weights.numpy(), color=COLOURS[0], height=0.6)
    right.axvline(1 / clusters, color="0.3", lw=0.8, ls="--")
    right.set(xlabel="routing weight", xlim=(0, None))
    figure.legend(loc="outside upper center", ncols=2)
    where = f"layer {layer}, channel {channel}, dimension {dim}, position {row}, {column}"
    add_note(figure, f"{where}; dashed: uniform weight")
    return figure


def _draw_votes(ax: "Axes", cast: Tensor, centroids: Tensor, spread: Tensor) -> None:
    """Votes of every cluster [I, K] on a line of its own, with centroid and spread below them."""
    rows = range(1, len(cast) + 1)
    for number, own in zip(rows, cast, strict=True):
        ax.plot(own, [number] * len(own), "o", mfc="none", color=COLOURS[0])
    bars: dict[str, Any] = {"fmt": "|", "ms": 7, "color": "0.2"}
    # Below the votes, which it would hide.
    low = [number + 0.25 for number in rows]
    ax.errorbar(centroids, low, xerr=spread, label="centroid and spread", **bars)
    ax.set(xlabel="vote", ylabel="cluster", yticks=list(rows), ylim=(len(cast) + 0.6, 0.4))


def _trace(model: ImageClassifier, images: Tensor, layer: int) -> RoutingTrace:
    if isinstance(model, CapsuleNet | ClassCapsuleNet):
        _, traces = model.forward_features(images, trace=True)
    elif isinstance(model, AffineCapsuleNet):
        _, traces = model.capsules(images, trace=True)
    else:
        raise ValueError(f"{type(model).__name__} has no cluster routing; use m1, for example")
    if not 1 <= layer <= len(traces):
        raise ValueError(f"layer must be 1 to {len(traces)}, got {layer}")
    return traces[layer - 1]


def _entry(values: Tensor, place: tuple[int, int, int, int]) -> Tensor:
    """What belongs to one channel, dimension, row and column [N] of [N, C, D, H, W]."""
    channel, dim, row, column = place
    return values[:, channel, dim, row, column].cpu()
