"""Figures of images that decoders reconstruct from changed capsules."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clustercaps.figures.panels import as_batch, label_row, show
from clustercaps.models import (
    ClassCapsuleNet,
    DrawingClassifier,
    ImageClassifier,
    LengthClassifier,
)
from clustercaps.utils.plotting import PAGE, SMALL, add_note, new_figure, styled
from clustercaps.utils.transformations import is_shift, transform

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


@styled
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
    features: Any = model.forward_features(as_batch(model, image)[:1])
    chosen = int(model.forward_head(features).argmax(1)) if label is None else label
    dims = features.shape[2]
    changed = features.repeat(dims * steps, 1, 1)
    offsets = torch.linspace(-reach, reach, steps, device=features.device)
    for dim in range(dims):
        changed[dim * steps : (dim + 1) * steps, chosen, dim] += offsets
    labels = torch.full((len(changed),), chosen, device=features.device)
    drawn = model.reconstruct(changed, labels).mean(1).cpu()
    tile = min(0.5, (PAGE - 0.5) / steps)
    figure = new_figure(tile * steps + 0.5, tile * dims + 0.6)
    grid = figure.subplots(dims, steps, squeeze=False)
    for ax, picture in zip(grid.flatten(), drawn, strict=True):
        show(ax, picture, "gray_r", 1.0)
    for dim, axes in enumerate(grid, 1):
        label_row(axes[0], str(dim))
    for column in {0, steps // 2, steps - 1}:
        offset = round(float(offsets[column]), 2)
        grid[0, column].set_title(f"{offset:+.2f}" if offset else "0", fontsize=SMALL)
    figure.supylabel("capsule dimension", fontsize=SMALL + 1)
    add_note(figure, f"reconstructions as one dimension of the capsule of class {chosen} changes")
    return figure


@styled
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
    batch = as_batch(model, image)[:1]
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
    tile = min(0.66, (PAGE - 0.9) / len(wanted))
    figure = new_figure(tile * len(wanted) + 0.9, 2 * tile + 0.5)
    grid = figure.subplots(2, len(wanted), squeeze=False)
    for column, (target, found, name) in enumerate(
        zip(wanted, drawn, ("original", *names), strict=True)
    ):
        show(grid[0, column], target[0].mean(0).cpu(), "gray_r", 1.0)
        show(grid[1, column], found[0].mean(0).cpu(), "gray_r", 1.0)
        grid[0, column].set_title(name, fontsize=SMALL)
        if pixels is not None:
            error = float((found - target).square().mean())
            grid[1, column].set_xlabel(f"{error:.4f}", fontsize=SMALL)
    label_row(grid[0, 0], "image")
    label_row(
        grid[1, 0], "reconstruction\n(squared error)" if pixels is not None else "reconstruction"
    )
    return figure
