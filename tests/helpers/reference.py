"""Cluster routing once more, as loops over scalars: independent of the library's code."""

import math

import numpy as np


def fill(shape: tuple[int, ...], a: float, b: float = 0.0) -> np.ndarray:
    """The deterministic input of the golden values: sin(a*i + b) in C order."""
    return np.sin(a * np.arange(math.prod(shape)) + b).reshape(shape)


def route_one(clusters: list[list[float]], eps: float, uniform: bool) -> tuple[float, list[float]]:
    """One dimension of one parent capsule from its clusters of votes."""
    means = [sum(votes) / len(votes) for votes in clusters]
    variances = [
        sum((v - m) ** 2 for v in votes) / len(votes)
        for votes, m in zip(clusters, means, strict=True)
    ]
    # As the paper writes it: softmax of the negative log of the standard deviation.
    agreements = [-math.log(math.sqrt(variance + eps)) for variance in variances]
    confidences = [1.0 if uniform else math.exp(a - max(agreements)) for a in agreements]
    weights = [c / sum(confidences) for c in confidences]
    return sum(w * m for w, m in zip(weights, means, strict=True)), weights


def route(votes: np.ndarray, eps: float, uniform: bool) -> tuple[np.ndarray, np.ndarray]:
    """Votes [B, I, K, *parent] to capsules [B, *parent] and weights [B, I, *parent]."""
    batch, clusters, _, *parent = votes.shape
    capsules, weights = np.zeros((batch, *parent)), np.zeros((batch, clusters, *parent))
    for b in range(batch):
        for index in np.ndindex(*parent):
            heard = [[v[index] for v in cluster] for cluster in votes[b]]
            place = (b, *index)
            capsules[place], found = route_one(heard, eps, uniform)
            for i, weight in enumerate(found):
                place = (b, i, *index)
                weights[place] = weight
    return capsules, weights


def vote(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    clusters: int,
    votes: int,
    out: tuple[int, int],
    stride: int,
    padding: int,
) -> np.ndarray:
    """Votes [B, I, K, C', D', H', W'] of child capsules [B, C, D, H, W], one by one."""
    batch, channels, _, height, width = x.shape
    k = weight.shape[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (padding, padding), (padding, padding)))
    out_height = (height + 2 * padding - k) // stride + 1
    out_width = (width + 2 * padding - k) // stride + 1
    cast = np.zeros((batch, channels * clusters, votes, *out, out_height, out_width))
    for b, i, n, q, c, d, row, col in np.ndindex(
        batch, channels, clusters, votes, *out, out_height, out_width
    ):
        filter_ = (((i * clusters + n) * votes + q) * out[0] + c) * out[1] + d
        top, left = row * stride, col * stride
        seen = padded[b, i, :, top : top + k, left : left + k]
        cast[b, i * clusters + n, q, c, d, row, col] = (seen * weight[filter_]).sum() + (
            0.0 if bias is None else bias[filter_]
        )
    return cast
