"""Weights of the mean and the contrasts of a cluster's votes, in plain PyTorch.

An orthogonal matrix transforms the K votes of a cluster to their mean m and K - 1 contrasts whose
squares sum to the variance, as in `contrasts.h`. Votes are linear in the weights, so the weights
are transformed instead, once per call.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def contrast_matrix(votes: int, like: Tensor) -> Float[Tensor, "rows votes"]:
    """Row 0 gives the mean of the votes, the others their contrasts."""
    j = torch.arange(votes, dtype=torch.float64, device="cpu").unsqueeze(1)
    scale = 1 / (j * (j + 1) * votes).sqrt()
    matrix = scale * (torch.ones(votes, votes).double().tril(-1) - torch.diag(j[:, 0]))
    matrix[0] = 1 / votes
    return matrix.to(like.device, like.dtype)


def to_contrasts(
    weight: Float[Tensor, "clusters votes parents taps"], uniform: bool
) -> Float[Tensor, "clusters rows taps parents"]:
    """Transform the weights of votes; uniform routing needs only those of the mean."""
    if uniform:
        return weight.mean(1, keepdim=True).transpose(2, 3)
    return torch.einsum("rk,ikpt->irtp", contrast_matrix(weight.shape[1], weight), weight)


def from_contrasts(
    gradient: Float[Tensor, "clusters rows taps parents"], votes: int
) -> Float[Tensor, "clusters votes parents taps"]:
    """The gradient of `to_contrasts`."""
    if gradient.shape[1] == 1:
        clusters, _, taps, parents = gradient.shape
        return (gradient / votes).transpose(2, 3).expand(clusters, votes, parents, taps)
    return torch.einsum("rk,irtp->ikpt", contrast_matrix(votes, gradient), gradient)
