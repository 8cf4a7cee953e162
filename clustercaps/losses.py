"""Losses of capsule networks, each the sum over its documented axes.

Exports the margin, spread, centripetal and reconstruction losses, the evidence lower bound of
variational capsules with its divergence, the margin's schedule of the spread loss, and the mask of
class capsules that decoders read.

Every loss is one number per image [B]; sum or average over the batch as you like. The training
loop takes the mean.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = [
    "centripetal_loss",
    "gaussian_kl",
    "margin_loss",
    "mask_capsules",
    "negative_elbo",
    "reconstruction_loss",
    "spread_loss",
    "spread_margin",
]


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


def centripetal_loss(
    distances: Float[Tensor, "batch classes"],
    labels: Int[Tensor, " batch"],
    dim: int,
    hit: float = 0.1,
    miss: float = 0.9,
    step: float = 0.1,
    slope: float = 0.2,
    absent_weight: float = 0.5,
    ghosts: bool = False,
) -> Float[Tensor, " batch"]:
    """Deliege et al. 2018 (HitNet), summed over the classes.

    The right capsule must come within `hit` of the centre of the cube [0, 1]^dim; the others must
    stay beyond `miss`. See `centripetal` for how much a capsule pays that does not.

    Args:
        distances: Distance of every class capsule to the centre, at most sqrt(dim) / 2.
        labels: The classes that are there.
        dim: Numbers in a class capsule.
        hit: How near the right capsule must come.
        miss: How near the others may come.
        step: Distance after which the price rises.
        slope: By how much it rises.
        absent_weight: How much the others count.
        ghosts: Let the wrong capsule that is nearest to the centre pay nothing: neither hit nor
            miss is asked of it.
    """
    farthest = math.sqrt(dim) / 2
    there = one_hot(labels, distances)
    present = centripetal(distances, hit, step, slope)
    absent = centripetal(farthest - distances, farthest - miss, step, slope)
    wrong = 1 - there
    if ghosts and distances.shape[1] > 1:
        nearest = distances.detach().masked_fill(there > 0, math.inf).argmin(1)
        wrong = wrong - one_hot(nearest, distances)
    return (there * present + absent_weight * wrong * absent).sum(1)


def centripetal(
    distances: Float[Tensor, "*shape"], margin: float, step: float = 0.1, slope: float = 0.2
) -> Float[Tensor, "*shape"]:
    """Zero up to a margin; beyond it, piecewise linear and steeper by `slope` every `step`."""
    beyond = (distances - margin).relu()
    # Whole steps beyond; their number is constant almost everywhere, and has no gradient.
    whole = (beyond.detach() / step).floor()
    done = whole * (whole + 1) / 2 * step * slope
    return done + (whole + 1) * slope * (beyond - whole * step)


def gaussian_kl(
    mean: Float[Tensor, "*batch size"], factor: Float[Tensor, "*batch size size"]
) -> Float[Tensor, "*batch"]:
    """How far N(mean, factor factor^T) is from N(0, I), as a Kullback-Leibler divergence.

    Args:
        mean: The mean.
        factor: Lower triangular, with positive numbers on its diagonal.
    """
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    trace = factor.square().sum((-2, -1))
    return (trace + mean.square().sum(-1) - mean.shape[-1]) / 2 - diagonal.log().sum(-1)


def negative_elbo(
    log_likelihood: Float[Tensor, " batch"], divergence: Float[Tensor, ""], train_images: int
) -> Float[Tensor, " batch"]:
    """The evidence lower bound of one image, with a minus: what variational inference makes small.

    Args:
        log_likelihood: Expected logarithm of the probability of each image's label.
        divergence: Of the approximate posterior from the prior, for the whole network.
        train_images: Images in the training set: each pays its part of the divergence.
    """
    return divergence / train_images - log_likelihood


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
    return (short * (1 - one_hot(labels, short))).sum(1)


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
