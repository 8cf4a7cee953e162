"""What the figures share: images as a batch, and images as panels."""

from typing import TYPE_CHECKING

from torch import Tensor

from clustercaps.models import ImageClassifier
from clustercaps.utils.plotting import SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def as_batch(model: ImageClassifier, images: Tensor) -> Tensor:
    """Images as a batch where the network is."""
    batch = images.unsqueeze(0) if images.ndim == 3 else images
    model.check_images(batch)
    return batch.to(next(model.parameters()))


def show(ax: "Axes", values: Tensor, colours: str, high: float | None = None) -> None:
    """Show a feature map as an image, without ticks."""
    low = None if high is None else 0.0
    ax.imshow(values.numpy(), cmap=colours, vmin=low, vmax=high)
    ax.set(xticks=[], yticks=[])
    # A thin frame, because the background of an image is white.
    ax.spines[:].set(visible=True, linewidth=0.3, color="0.6")


def label_row(ax: "Axes", text: str) -> None:
    """A label at the left of an image."""
    ax.text(-0.1, 0.5, text, transform=ax.transAxes, ha="right", va="center", fontsize=SMALL)
