"""Figures of what a trained network does with an image, for notebooks and papers.

Exports `routing`, `votes`, `perturbations` and `transforms`, which return matplotlib figures, and
`save`, which writes one as PNG and PDF. Images are preprocessed, as the network reads them; layers,
channels and dimensions start at 1.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clustercaps.layers import RoutingTrace
from clustercaps.models import (
    AffineCapsuleNet,
    CapsuleNet,
    ClassCapsuleNet,
    DrawingClassifier,
    ImageClassifier,
    LengthClassifier,
)
from clustercaps.utils.plotting import COLOURS, new_figure
from clustercaps.utils.plotting import save as _save
from clustercaps.utils.transformations import is_shift, transform

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["perturbations", "routing", "save", "transforms", "votes"]

TRANSFORMATIONS = (
    "R-45",
    "R-90",
    "R-180",
    "H-flip",
    "V-flip",
    "Shift-2",
    "Scale-0.75",
    "Scale-1.5",
)
SMALL = 7


@torch.no_grad()
def routing(model: ImageClassifier, images: Tensor, layer: int = 2) -> "Figure":
    """The capsules of one layer, and the routing weight of each vote cluster.

    Args:
        model: A capsule network with cluster or uniform routing.
        images: One image [C, H, W], or a few of them.
        layer: Capsule layer to show, starting at 1.
    """
    images = _batch(model, images)
    trace = _trace(model, images, layer)
    lengths = (trace.weights * trace.centroids).sum(1).norm(dim=2).cpu()  # [B, C, H, W]
    shares = trace.weights.mean((2, 3)).cpu()  # [B, I, H, W]
    channels, clusters = lengths.shape[1], shares.shape[1]
    figure = new_figure(1.15 * (2 + channels + clusters), 1.15 * len(images) + 0.6)
    grid = figure.subplots(len(images), 2 + channels + clusters, squeeze=False)
    fair = 1 / clusters
    for row, axes in enumerate(grid):
        _show(axes[0], images[row].cpu().mean(0), "gray_r")
        for channel in range(channels):
            _show(axes[1 + channel], lengths[row, channel], "viridis", float(lengths[row].max()))
        for cluster in range(clusters):
            # A diverging colour map: white is the uniform weight 1 / clusters.
            _show(axes[1 + channels + cluster], shares[row, cluster], "RdBu_r", 2 * fair)
        bars = axes[-1]
        means = shares[row].mean((1, 2)).numpy()
        bars.bar(range(1, clusters + 1), means, color=COLOURS[0], width=0.7)
        bars.axhline(fair, color="0.3", linewidth=0.8, linestyle="--")
        bars.set(ylim=(0, 2 * fair), xticks=[], yticks=[])
        bars.spines[["top", "right"]].set_visible(False)
    titles = ["image", *(f"capsules\nchannel {channel + 1}" for channel in range(channels))]
    titles += [f"weight of\ncluster {cluster + 1}" for cluster in range(clusters)]
    for ax, title in zip(grid[0], [*titles, "mean\nweights"], strict=True):
        ax.set_title(title, fontsize=9)
    figure.suptitle(
        f"Capsule lengths and routing weights in layer {layer} "
        f"(red: above 1/{clusters}, blue: below; dashed: 1/{clusters})",
        fontsize=10,
    )
    return figure


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
    trace = _trace(model, _batch(model, image)[:1], layer)
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
    figure = new_figure(5.6, 0.42 * clusters + 1.0)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    left.axvline(parent, color=COLOURS[1], lw=1, label=f"parent {parent:.3f}")
    _draw_votes(left, cast, centroids, spread)
    right.barh(range(1, clusters + 1), weights.numpy(), color=COLOURS[0], height=0.6)
    right.axvline(1 / clusters, color="0.3", lw=0.8, ls="--")
    right.set(xlabel="routing weight", xlim=(0, None))
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=SMALL)
        ax.xaxis.label.set_size(SMALL + 1)
        ax.yaxis.label.set_size(SMALL + 1)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=SMALL)
    where = f"layer {layer}, channel {channel}, dimension {dim}, position {row}, {column}"
    figure.suptitle(f"Votes: {where}", fontsize=9)
    return figure


def _draw_votes(ax: "Axes", cast: Tensor, centroids: Tensor, spread: Tensor) -> None:
    """Votes of every cluster [I, K] on a line of its own, with centroid and spread below them."""
    rows = range(1, len(cast) + 1)
    for number, own in zip(rows, cast, strict=True):
        ax.plot(own, [number] * len(own), "o", ms=4, mfc="none", color=COLOURS[0])
    bars: dict[str, Any] = {"fmt": "|", "ms": 9, "color": "0.2", "capsize": 3}
    # Below the votes, which it would hide.
    low = [number + 0.25 for number in rows]
    ax.errorbar(centroids, low, xerr=spread, label="centroid and spread", **bars)
    ax.set(xlabel="vote", ylabel="cluster", yticks=list(rows), ylim=(len(cast) + 0.6, 0.4))


@torch.no_grad()
def perturbations(
    model: ImageClassifier,
    image: Tensor,
    label: int | None = None,
    reach: float = 0.25,
    steps: int = 11,
) -> "Figure":
    """Reconstructions as each dimension of a class capsule varies, one row per dimension.

    Args:
        model: A network with class capsules and a decoder.
        image: One image [C, H, W].
        label: Class whose capsule varies; the predicted one by default.
        reach: Largest change of a dimension.
        steps: Reconstructions per dimension.
    """
    if not isinstance(model, ClassCapsuleNet | LengthClassifier) or model.decoder is None:
        raise ValueError(
            f"{type(model).__name__} has no class capsules with a decoder; use class_capsules"
        )
    features: Any = model.forward_features(_batch(model, image)[:1])
    chosen = int(model.forward_head(features).argmax(1)) if label is None else label
    dims = features.shape[2]
    changed = features.repeat(dims * steps, 1, 1)
    offsets = torch.linspace(-reach, reach, steps, device=features.device)
    for dim in range(dims):
        changed[dim * steps : (dim + 1) * steps, chosen, dim] += offsets
    labels = torch.full((len(changed),), chosen, device=features.device)
    drawn = model.reconstruct(changed, labels).mean(1).cpu()
    figure = new_figure(0.5 * steps + 0.5, 0.5 * dims + 0.6)
    grid = figure.subplots(dims, steps, squeeze=False)
    for ax, picture in zip(grid.flatten(), drawn, strict=True):
        _show(ax, picture, "gray_r", 1.0)
    for dim, axes in enumerate(grid, 1):
        _label(axes[0], str(dim))
    for column in {0, steps // 2, steps - 1}:
        # Adding zero makes a negative zero positive.
        offset = round(float(offsets[column]), 2) + 0.0
        grid[0, column].set_title(f"{offset:+.2f}", fontsize=SMALL)
    figure.supylabel("capsule dimension", fontsize=SMALL + 1)
    return figure


@torch.no_grad()
def transforms(
    model: ImageClassifier,
    image: Tensor,
    pixels: Tensor | None = None,
    names: Sequence[str] = TRANSFORMATIONS,
) -> "Figure":
    """Reconstructions from transformed channels, below the image transformed in the same way.

    Args:
        model: `affine_capsules` or `affine_cnn`.
        image: One image [C, H, W].
        pixels: The same image with values in 0 to 1; the mean squared error is then stated.
        names: Transformations, such as "R-45", "H-flip", "Shift-2" and "Scale-1.5".
    """
    if not isinstance(model, DrawingClassifier):
        raise ValueError(
            f"{type(model).__name__} has no decoder of feature maps; use affine_capsules or "
            "affine_cnn"
        )
    batch = _batch(model, image)[:1]
    features: Tensor = model.forward_features(batch).flatten(1, -3)
    unit = batch.shape[-1] / features.shape[-1]
    low, high = batch.min(), batch.max()
    shown = (batch - low) / (high - low).clamp(min=1e-6)
    if pixels is not None:
        shown = pixels.to(batch).view_as(batch)
    wanted = [shown, *(transform(shown, name, unit if is_shift(name) else 1.0) for name in names)]
    drawn = [
        model.reconstruct(maps) for maps in (features, *(transform(features, n) for n in names))
    ]
    figure = new_figure(0.75 * len(wanted) + 1.0, 2.1)
    grid = figure.subplots(2, len(wanted), squeeze=False)
    for column, (target, found, name) in enumerate(
        zip(wanted, drawn, ("original", *names), strict=True)
    ):
        _show(grid[0, column], target[0].mean(0).cpu(), "gray_r", 1.0)
        _show(grid[1, column], found[0].mean(0).cpu(), "gray_r", 1.0)
        grid[0, column].set_title(name, fontsize=SMALL)
        if pixels is not None:
            error = float((found - target).square().mean())
            grid[1, column].set_title(f"{error:.4f}", fontsize=SMALL, y=-0.25)
    _label(grid[0, 0], "image")
    _label(
        grid[1, 0], "reconstruction\n(squared error)" if pixels is not None else "reconstruction"
    )
    return figure


def save(figure: "Figure", path: Path | str) -> Path:
    """Write a figure as PNG, and as PDF next to it.

    Args:
        figure: The figure.
        path: Path of the PNG.
    """
    return _save(figure, Path(path), pdf=True)


def _batch(model: ImageClassifier, images: Tensor) -> Tensor:
    """Images as a batch where the network is."""
    batch = images.unsqueeze(0) if images.ndim == 3 else images
    model.check_images(batch)
    return batch.to(next(model.parameters()))


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


def _show(ax: "Axes", values: Tensor, colours: str, high: float | None = None) -> None:
    """Show a feature map as an image, without ticks."""
    low = None if high is None else 0.0
    ax.imshow(values.numpy(), cmap=colours, vmin=low, vmax=high)
    ax.set(xticks=[], yticks=[])
    # A thin frame, because the background of an image is white.
    ax.spines[:].set(linewidth=0.3, color="0.6")


def _label(ax: "Axes", text: str) -> None:
    """A label at the left of an image."""
    ax.text(-0.1, 0.5, text, transform=ax.transAxes, ha="right", va="center", fontsize=SMALL)
