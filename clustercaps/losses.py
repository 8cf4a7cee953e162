"""Losses of capsule networks, each the sum over its documented axes.

Every function returns one number per image [B]; sum or average over the batch as you like. The
training loop takes the mean.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


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
    there = F.one_hot(labels, lengths.shape[1]).to(lengths.dtype)
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
    kept = F.one_hot(labels, capsules.shape[1]).unsqueeze(2).to(capsules.dtype)
    return torch.flatten(capsules * kept, 1)


def spread_loss(
    activations: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"], margin: float
) -> Float[Tensor, " batch"]:
    """Hinton et al. 2018, summed over the wrong classes: max(0, margin - (a_true - a_wrong))^2.

    The authors' code also averages over the classes.

    Args:
        activations: Of the class capsules.
        labels: The classes that are there.
        margin: By how much the right class must lead; see `spread_margin`.
    """
    true = activations.gather(1, labels.unsqueeze(1))
    short = (margin - (true - activations)).relu().square()
    # The right class leads itself by 0, which is no mistake.
    return (short * (1 - F.one_hot(labels, activations.shape[1]).to(short.dtype))).sum(1)


def spread_margin(step: int, first: float = 0.2, last: float = 0.99, pace: float = 5e4) -> float:
    """The margin of `spread_loss` after so many steps, as in the authors' code.

    first + (last - first) sigmoid(min(10, step / pace - 4)): 0.21 at the start, 0.6 after 200,000
    steps, 0.98 after 400,000.

    Args:
        step: Steps of training done so far.
        first: The margin long before the rise.
        last: The margin after it.
        pace: Steps that the rise is measured in; smaller for shorter runs.
    """
    return first + (last - first) / (1 + math.exp(-min(10.0, step / pace - 4)))
