"""Figures, drawn from what the networks computed and nothing else."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clustercaps.layers import ImageBatch
from clustercaps.models import CapsuleNet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure as PNG, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        figure.savefig(unfinished, format="png", dpi=150, bbox_inches="tight")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure that needs no screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'clustercaps[figures]'") from error
    return Figure(figsize=(width, height), layout="constrained")


@torch.no_grad()
def routing_figure(
    model: CapsuleNet,
    images: ImageBatch,
    path: Path,
    layer: int = 2,
) -> Path:
    """Per image: its capsules in one layer, and how much each vote cluster counted for them.

    Args:
        model: A capsule network.
        images: A few images, ready for the network.
        path: Where the PNG goes.
        layer: Which capsule layer to show, from 1.
    """
    _, traces = model.forward_features(images, trace=True)
    weights = traces[layer - 1].weights  # [B, I, C, D, H, W]
    capsules = (weights * traces[layer - 1].centroids).sum(1)
    lengths = capsules.norm(dim=2)  # [B, C, H, W]
    shares = weights.mean((2, 3))  # [B, I, H, W]
    channels, clusters = lengths.shape[1], shares.shape[1]

    figure = new_figure(1.15 * (2 + channels + clusters), 1.15 * len(images) + 0.6)
    grid = figure.subplots(len(images), 2 + channels + clusters, squeeze=False)
    fair = 1 / clusters
    for row, axes in enumerate(grid):
        show_map(axes[0], images[row].mean(0), "gray_r", None)
        for channel in range(channels):
            limits = (0.0, float(lengths[row].max()))
            show_map(axes[1 + channel], lengths[row, channel], "viridis", limits)
        for cluster in range(clusters):
            ax = axes[1 + channels + cluster]
            # Diverging about 1 / clusters: white is where the cluster counts as if by chance.
            show_map(ax, shares[row, cluster], "RdBu_r", (0.0, 2 * fair))
        bars = axes[-1]
        bars.bar(
            range(1, clusters + 1), shares[row].mean((1, 2)).numpy(), color="#4c72b0", width=0.7
        )
        bars.axhline(fair, color="0.3", linewidth=0.8, linestyle="--")
        bars.set(ylim=(0, 2 * fair), xticks=[], yticks=[])
        bars.spines[["top", "right"]].set_visible(False)
    grid[0][0].set_title("image", fontsize=9)
    for channel in range(channels):
        grid[0][1 + channel].set_title(f"capsules\nchannel {channel + 1}", fontsize=9)
    for cluster in range(clusters):
        grid[0][1 + channels + cluster].set_title(f"weight of\ncluster {cluster + 1}", fontsize=9)
    grid[0][-1].set_title("mean\nweights", fontsize=9)
    figure.suptitle(
        f"Capsule lengths and routing weights in layer {layer} "
        f"(red: above 1/{clusters}, blue: below; dashed: 1/{clusters})",
        fontsize=10,
    )
    return save(figure, path)


def show_map(ax: "Axes", values: Tensor, colours: str, limits: tuple[float, float] | None) -> None:
    """One map as pixels, without axes."""
    low, high = limits or (None, None)
    ax.imshow(values.numpy(), cmap=colours, vmin=low, vmax=high)
    ax.set_axis_off()
