"""Losses of capsule networks, each the sum over its documented axes.

Every function returns one number per image [B]; sum or average over the batch as you like. The
training loop takes the mean.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def margin_loss(
    lengths: Float[Tensor, "batch classes"],
    labels: Int[Tensor, " batch"],
    upper: float = 0.9,
    lower: float = 0.1,
    absent_weight: float = 0.5,
) -> Float[Tensor, " batch"]:
    """Sabour et al. 2017, summed over the classes.

    T_k max(0, upper - |v_k|)^2 + absent_weight (1 - T_k) max(0, |v_k| - lower)^2. The authors' code
    halves this and averages over the classes, which makes its reconstruction loss 20 times heavier
    for ten classes; the paper's formula, here, does not.

    Args:
        lengths: Lengths of the class capsules.
        labels: The classes that are there.
        upper: The length that the right capsule must reach (m+).
        lower: The length that the others may keep (m-).
        absent_weight: How much the others count (lambda).
    """
    there = one_hot(labels, lengths)
    present = (upper - lengths).relu().square()
    absent = (lengths - lower).relu().square()
    return (there * present + absent_weight * (1 - there) * absent).sum(1)


def reconstruction_loss(
    drawn: Float[Tensor, "batch *image"], pixels: Float[Tensor, "batch *image"]
) -> Float[Tensor, " batch"]:
    """Squared error, summed over channels and pixels; papers weigh it by 0.0005."""
    return (drawn - pixels).square().flatten(1).sum(1)


def mask_capsules(
    capsules: Float[Tensor, "batch classes dim"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, "batch classes*dim"]:
    """All class capsules but one set to zero, flat, as a decoder reads them."""
    kept = one_hot(labels, capsules[:, :, 0])
    return torch.flatten(capsules * kept.unsqueeze(2), 1)


def one_hot(labels: Int[Tensor, " batch"], scores: Float[Tensor, "batch classes"]) -> Tensor:
    """Ones at the labels and zeros elsewhere, like the scores in shape and type."""
    # functional.one_hot looks at the labels' values, which compilers and shape tracers cannot.
    return torch.zeros_like(scores).scatter(1, labels.unsqueeze(1), 1.0)
