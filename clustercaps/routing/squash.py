"""Lengths and squash functions of capsules, with finite values and gradients also at zero."""

import torch
from torch import Tensor

# Added to squared lengths: the square root has no gradient at exactly zero.
SMALLEST = 1e-8


def length(capsules: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Euclidean length along an axis; its gradient at a zero capsule is zero, not NaN."""
    return (capsules.square().sum(dim, keepdim=keepdim) + SMALLEST).sqrt()


def squash(capsules: Tensor, dim: int = -1) -> Tensor:
    """Sabour et al. 2017: a capsule of length n gets the length n^2 / (1 + n^2)."""
    norm = length(capsules, dim, keepdim=True)
    # n^2/(1+n^2) s/n with one n cancelled.
    return norm / (1 + norm.square()) * capsules


def squash_gradient(capsules: Tensor, gradient: Tensor, dim: int = -1) -> Tensor:
    """Gradient of the input of `squash`, given that of its result."""
    squared = capsules.square().sum(dim, keepdim=True) + SMALLEST
    norm = squared.sqrt()
    inner = (capsules * gradient).sum(dim, keepdim=True)
    # With f(n) = n / (1 + n^2): f(n) g + f'(n) <s, g> s / n.
    slope = (1 - squared) / (norm * (1 + squared).square())
    return norm / (1 + squared) * gradient + slope * inner * capsules


def squash_unsquared(capsules: Tensor, dim: int = -1) -> Tensor:
    """The form n / (1 + n) that the cluster routing paper prints for dynamic routing."""
    return capsules / (1 + length(capsules, dim, keepdim=True))


def squash_exponential(capsules: Tensor, dim: int = -1) -> Tensor:
    """Mazzia et al. 2021: the new length is 1 - exp(-n), steeper than `squash` near zero."""
    norm = length(capsules, dim, keepdim=True)
    return -torch.expm1(-norm) / norm * capsules


def squash_half(capsules: Tensor, dim: int = -1) -> Tensor:
    """The squash of kernel density routing: the new length is n^2 / (1/2 + n^2)."""
    norm = length(capsules, dim, keepdim=True)
    return norm / (0.5 + norm.square()) * capsules
