"""The paper's 18 transformations, for images and for feature maps of any size."""

from clustercaps.experiments.paper import paper
from clustercaps.utils.transformations import amount, is_shift, transform

__all__ = ["amount", "is_shift", "names", "transform"]


def names() -> list[str]:
    """The transformations in the paper's order: R-0, ..., H-flip, ..., Shift-1, ..., Scale-2."""
    return list(paper()["affine"]["transformations"])
