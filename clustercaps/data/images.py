"""A dataset in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor


@dataclass(frozen=True)
class Images:
    """All images of one split, as one uint8 tensor.

    Args:
        pixels: the images, 0 to 255.
        labels: class index of each image.
        meta: metadata: `name`, `split`, `class_names`, `num_classes`, `source`; every tensor in it
            (such as `azimuth` of smallNORB) has one row per image.
    """

    pixels: UInt8[Tensor, "images channels height width"]
    labels: Int64[Tensor, "images"]
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = {"pixels": len(self.pixels), "labels": len(self.labels)}
        rows |= {k: len(v) for k, v in self.meta.items() if isinstance(v, Tensor)}
        if len(set(rows.values())) > 1:
            raise ValueError(f"every tensor must have one row per image, got {rows}")

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Tensor | Sequence[int] | slice) -> "Images":
        """Return the selected images, in this order.

        Args:
            indices: image indices, a slice, or a mask with one entry per image.
        """
        chosen = indices if isinstance(indices, slice) else torch.as_tensor(indices)
        if isinstance(chosen, Tensor) and chosen.numel() == 0:
            # An empty list becomes a float tensor, which cannot index.
            chosen = chosen.to(torch.int64)
        meta = {k: v[chosen] if isinstance(v, Tensor) else v for k, v in self.meta.items()}
        return Images(self.pixels[chosen], self.labels[chosen], meta)
