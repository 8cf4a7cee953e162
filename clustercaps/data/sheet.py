"""A contact sheet of a dataset: one row per class."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import UInt8
from torch import Tensor

from clustercaps.data.images import Images
from clustercaps.utils.plotting import PAGE, SMALL, TINY, add_note, new_figure, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Number of columns of a stereo dataset that vary each property; the others are fixed.
COLUMNS = {"azimuth": 6, "elevation": 3, "lighting": 3, "instance": 3}
TITLES = {
    "azimuth": "azimuth",
    "elevation": "elevation",
    "lighting": "lighting",
    "instance": "object",
}
PLAIN_COLUMNS = 14


@dataclass(frozen=True)
class Group:
    """Columns of the sheet that belong together.

    Args:
        title: the property that varies between columns.
        labels: one below each column.
        numbers: indices of the images to show; one row per class.
        channel: the channel to show, or None for colour images.
    """

    title: str
    labels: list[str]
    numbers: list[list[int]]
    channel: int | None


@styled
def contact_sheet(images: Images, path: Path) -> Path:
    """Draw some images of every class of a dataset.

    Args:
        images: a split. If its viewpoints are known, groups of columns vary one of azimuth,
            elevation, lighting, camera and object.
        path: path of the PNG.
    """
    groups = _viewpoint_groups(images) if "azimuth" in images.meta else [_plain_group(images)]
    names = images.meta["class_names"]
    widths = [len(group.labels) for group in groups]
    # Inches: what class names and the space between groups leave.
    tile = (PAGE - 0.7 - 0.05 * len(groups)) / max(sum(widths), 10)
    figure = new_figure(PAGE, tile * len(names) + 0.5)
    panels = figure.subplots(1, len(groups), width_ratios=widths, squeeze=False)[0]
    for panel, group in zip(panels, groups, strict=True):
        _draw(panel, images, group)
    side = images.pixels.shape[-1]
    panels[0].set_yticks([side * (row + 0.5) for row in range(len(names))], names)
    made = ", rendered" if images.meta["name"].startswith("rendered") else ""
    add_note(figure, f"{images.meta['name']} ({images.meta['split']}{made})")
    return save(figure, path)


def _draw(panel: "Axes", images: Images, group: Group) -> None:
    rows = [torch.cat(list(images.pixels[row]), dim=-1) for row in group.numbers]
    sheet: UInt8[Tensor, "channels height width"] = torch.cat(rows, dim=-2)
    if group.channel is None:
        panel.imshow(sheet.permute(1, 2, 0).numpy(), interpolation="antialiased")
    else:
        shown = sheet[group.channel].numpy()
        panel.imshow(shown, cmap="gray", vmin=0, vmax=255, interpolation="antialiased")
    width = images.pixels.shape[-1]
    middles = [width * (column + 0.5) for column in range(len(group.labels))]
    panel.set_xticks(middles, group.labels, fontsize=TINY)
    panel.set_yticks([])
    panel.set_title(group.title, fontsize=SMALL, pad=3)
    panel.tick_params(length=0, pad=2)
    panel.spines[:].set_visible(False)


def _plain_group(images: Images) -> Group:
    """The first images of each class."""
    classes = range(images.meta["num_classes"])
    members = [(images.labels == label).nonzero().flatten().tolist() for label in classes]
    # A split of a folder may lack classes.
    present = [numbers for numbers in members if numbers]
    count = min(PLAIN_COLUMNS, *(len(numbers) for numbers in present))
    numbers = [row[:count] for row in members]
    channel = None if images.pixels.shape[1] == 3 else 0
    return Group("", [""] * count, numbers, channel)


def _viewpoint_groups(images: Images) -> list[Group]:
    codes = {key: sorted(set(images.meta[key].tolist())) for key in COLUMNS}
    usual = {key: values[min(1, len(values) - 1)] for key, values in codes.items()}
    # Oblique front views show most of an object.
    usual["azimuth"] = 4 if 4 in codes["azimuth"] else codes["azimuth"][0]
    groups = []
    for key, count in COLUMNS.items():
        values = _spread(codes[key], count)
        numbers = _find(images, [usual | {key: value} for value in values])
        labels = [_label(key, value) for value in values]
        groups.append(Group(TITLES[key], labels, numbers, 0))
    groups.append(Group("camera 2", [""], _find(images, [usual]), 1))
    return groups


def _spread(values: list[int], count: int) -> list[int]:
    """At most `count` of the values, evenly spaced, including the first."""
    count = min(count, len(values))
    # Azimuths are periodic: the last one is next to the first.
    last = len(values) if len(values) % count == 0 and count > 3 else len(values) - 1
    steps = count if last == len(values) else max(1, count - 1)
    return [values[round(number * last / steps)] for number in range(count)]


def _find(images: Images, wanted: list[dict[str, int]]) -> list[list[int]]:
    """Index of the image with the wanted codes, for each class and each entry of `wanted`."""
    table = torch.stack([images.meta[key] for key in COLUMNS], dim=1)
    rows = []
    for label in range(images.meta["num_classes"]):
        codes = [torch.tensor([wish[key] for key in COLUMNS]) for wish in wanted]
        hits = [((table == code).all(1) & (images.labels == label)).nonzero() for code in codes]
        rows.append([int(hit[0]) for hit in hits])
    return rows


def _label(key: str, code: int) -> str:
    degrees = {"azimuth": 10 * code, "elevation": 30 + 5 * code}
    return f"{degrees[key]}°" if key in degrees else str(code)
