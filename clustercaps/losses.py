"""Losses of capsule networks.

Exports the margin, spread, centripetal and reconstruction losses, the evidence lower bound of
variational capsules with its KL divergence, the margin schedule of the spread loss, and the mask of
class capsules for decoders.

Every loss returns one value per image [B], without reduction over the batch. The training loop
takes the mean.
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

        T_k max(0, upper - |v_k|)^2 + absent_weight (1 - T_k) max(0, |v_k| - lower)^2

    This is the paper's formula. The released code halves it and averages over the classes, which
    for ten classes makes the relative weight of the reconstruction loss 20 times larger.

    Args:
        lengths: Lengths of the class capsules.
        labels: The true classes.
        upper: Length that the capsule of the true class should reach (m+).
        lower: Length that the others may have (m-).
        absent_weight: Weight of the others (lambda).
    """
    there = one_hot(labels, lengths)
    present = (upper - lengths).relu().square()
    absent = (lengths - lower).relu().square()
    return (there * present + absent_weight * (1 - there) * absent).sum(1)


def reconstruction_loss(
    drawn: Float[Tensor, "batch *image"], pixels: Float[Tensor, "batch *image"]
) -> Float[Tensor, " batch"]:
    """Squared error, summed over channels and pixels; papers use a weight of 0.0005."""
    return (drawn - pixels).square().flatten(1).sum(1)


def mask_capsules(
    capsules: Float[Tensor, "batch classes dim"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, "batch classes*dim"]:
    """Class capsules with all but the labelled one set to zero, flattened for a decoder."""
    kept = one_hot(labels, capsules[:, :, 0])
    return torch.flatten(capsules * kept.unsqueeze(2), 1)


def one_hot(labels: Int[Tensor, " batch"], scores: Float[Tensor, "batch classes"]) -> Tensor:
    """Ones at the labels and zeros elsewhere, with the shape and dtype of the scores."""
    # functional.one_hot reads the values of the labels, which breaks compiling and tracing.
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

    The capsule of the true class should be within `hit` of the centre of the cube [0, 1]^dim; the
    others should be farther than `miss`. Otherwise `centripetal` gives the penalty.

    Args:
        distances: Distance of every class capsule from the centre, at most sqrt(dim) / 2.
        labels: The true classes.
        dim: Dimension of a class capsule.
        hit: Maximum distance of the true class without penalty.
        miss: Minimum distance of the others without penalty.
        step: Distance after which the slope increases.
        slope: Increase of the slope.
        absent_weight: Weight of the others.
        ghosts: Do not penalise the wrong capsule that is closest to the centre.
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
    # Number of whole steps, which is constant almost everywhere and has no gradient.
    whole = (beyond.detach() / step).floor()
    done = whole * (whole + 1) / 2 * step * slope
    return done + (whole + 1) * slope * (beyond - whole * step)


def gaussian_kl(
    mean: Float[Tensor, "*batch size"], factor: Float[Tensor, "*batch size size"]
) -> Float[Tensor, "*batch"]:
    """Kullback-Leibler divergence of N(mean, factor factor^T) from N(0, I).

    Args:
        mean: The mean.
        factor: Cholesky factor: lower triangular, with a positive diagonal.
    """
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    trace = factor.square().sum((-2, -1))
    return (trace + mean.square().sum(-1) - mean.shape[-1]) / 2 - diagonal.log().sum(-1)


def negative_elbo(
    log_likelihood: Float[Tensor, " batch"], divergence: Float[Tensor, ""], train_images: int
) -> Float[Tensor, " batch"]:
    """The negative evidence lower bound (ELBO) per image, the objective of variational inference.

    Args:
        log_likelihood: Expected log-likelihood of each image's label.
        divergence: KL divergence of the approximate posterior from the prior, of the whole network.
        train_images: Number of images in the training set, over which the divergence is divided.
    """
    return divergence / train_images - log_likelihood


def spread_loss(
    activations: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"], margin: float
) -> Float[Tensor, " batch"]:
    """Hinton et al. 2018, summed over the wrong classes.

        max(0, margin - (a_true - a_wrong))^2

    The released code also averages over the classes.

    Args:
        activations: Activations of the class capsules.
        labels: The true classes.
        margin: Required lead of the true class; see `spread_margin`.
    """
    true = activations.gather(1, labels.unsqueeze(1))
    short = (margin - (true - activations)).relu().square()
    # The true class is not compared with itself.
    return (short * (1 - one_hot(labels, short))).sum(1)


def spread_margin(step: int, first: float = 0.2, last: float = 0.99, pace: float = 5e4) -> float:
    """The margin of `spread_loss` after a number of steps, as in the released code.

        first + (last - first) sigmoid(min(10, step / pace - 4))

    With the defaults it is 0.21 at the start, 0.6 after 200,000 steps, and 0.98 after 400,000.

    Args:
        step: Number of training steps so far.
        first: Lower limit of the margin.
        last: Upper limit of the margin.
        pace: Time scale of the increase in steps; use smaller values for shorter runs.
    """
    return first + (last - first) / (1 + math.exp(-min(10.0, step / pace - 4)))
