"""Splits of a dataset: training and validation, familiar and novel viewpoints."""

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from clustercaps.data.images import Images

# smallNORB codes: azimuth in tens of degrees, elevation in steps of five degrees from 30.
FAMILIAR = {"azimuth": (30, 32, 34, 0, 2, 4), "elevation": (0, 1, 2)}


def validation_split(
    labels: Int64[Tensor, "images"], fraction: float = 0.2, seed: int = 0
) -> tuple[Int64[Tensor, "train"], Int64[Tensor, "validation"]]:
    """Hold out the same fraction of every class.

    Args:
        labels: classes of the training images.
        fraction: fraction of each class to hold out, rounded to whole images.
        seed: the same seed always holds out the same images.

    Returns:
        Indices of the training images and of the held-out images, both in ascending order.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}")
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().flatten().cpu()
        order = torch.randperm(len(members), generator=generator)
        held_out[members[order[: round(fraction * len(members))]]] = True
    return (~held_out).nonzero().flatten(), held_out.nonzero().flatten()


def viewpoint_split(
    images: Images, kind: str = "azimuth"
) -> tuple[Bool[Tensor, "images"], Bool[Tensor, "images"]]:
    """Split smallNORB or `rendered-norb` into familiar and novel viewpoints.

    The paper trains on the familiar images of the training set, matches networks on the familiar
    images of the test set, and reports the error on the novel images of the test set.

    Args:
        images: a split of `smallnorb` or `rendered-norb`.
        kind: `azimuth` (familiar: 300 to 40 degrees) or `elevation` (familiar: 30 to 40 degrees).

    Returns:
        Two masks, familiar and novel; every image is in exactly one.
    """
    if kind not in FAMILIAR:
        raise ValueError(f"kind must be 'azimuth' or 'elevation', got {kind!r}")
    if kind not in images.meta:
        name = images.meta.get("name", "this dataset")
        raise ValueError(f"{name} has no {kind}; use smallnorb or rendered-norb")
    familiar = torch.isin(images.meta[kind], torch.tensor(FAMILIAR[kind]))
    return familiar, ~familiar
