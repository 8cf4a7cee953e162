"""Self-routing: the pose of every child alone determines its coupling coefficients.

Hahn, Pyeon and Kim, "Self-routing capsule networks", NeurIPS 2019.

    c_i. = softmax over parents of (W_i p_i + b_i)      p_i is the pose of the child
    a_j  = sum_i c_ij a_i / sum_i a_i                   so the a_j sum to 1
    v_j  = sum_i c_ij a_i u_ij / sum_i c_ij a_i

No agreement, no iterations: a mixture of experts with one gate per child. W and b start at 0, which
gives equal coupling coefficients.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.routing.base import ChildActivations, ChildPoses, Routed, Routing, Votes
from clustercaps.utils.errors import at_least

# Added to sums of activations in divisors: positions without activations give zeros.
EPS = 1e-6
Coupling = Float[Tensor, "batch children parents *positions"]


def self_coupling(
    poses: ChildPoses,
    weight: Float[Tensor, "children parents in_dim"],
    bias: Float[Tensor, "children parents"],
) -> Coupling:
    """Coupling coefficients from the poses of the children."""
    shift = bias.view(1, *bias.shape, *[1] * (poses.ndim - 3))
    return (torch.einsum("ije,bie...->bij...", weight, poses) + shift).softmax(2)


def parent_activations(
    coupling: Coupling, activations: ChildActivations, eps: float = EPS
) -> Float[Tensor, "batch parents *positions"]:
    """The share of the total activation that each parent receives; shares sum to 1."""
    reached = torch.einsum("bij...,bi...->bj...", coupling, activations)
    return reached / (activations.sum(1).unsqueeze(1) + eps)


def self_route(
    votes: Votes,
    activations: ChildActivations,
    poses: ChildPoses,
    weight: Float[Tensor, "children parents in_dim"],
    bias: Float[Tensor, "children parents"],
    eps: float = EPS,
) -> Routed:
    """Route votes [B, I, J, D, *positions] by the poses of the children.

    Args:
        votes: The vote of every child for every parent.
        activations: Activations of the children, in [0, 1].
        poses: Poses of the children [B, I, in_dim, *positions].
        weight: Weights of the scores (W).
        bias: Added to the scores (b).
        eps: Added to sums of activations before division.

    Returns:
        Parents, their activations, which sum to 1 over the parents, and the coupling coefficients.
    """
    coupling = self_coupling(poses, weight, bias)
    used = coupling * activations.unsqueeze(2)
    total = torch.einsum("bij...,bijd...->bjd...", used, votes)
    capsules = total / (used.sum(1).unsqueeze(2) + eps)
    return Routed(capsules, parent_activations(coupling, activations, eps), coupling)


class SelfRouting(Routing):
    """Self-routing as a module, with learnable gates.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        in_dim: Dimension of a child's pose; `dim` by default.
        eps: Added to sums of activations before division.
    """

    takes_activations = True
    takes_poses = True

    def __init__(
        self, children: int, parents: int, dim: int, in_dim: int | None = None, eps: float = EPS
    ) -> None:
        super().__init__(children, parents, dim)
        self.in_dim = dim if in_dim is None else in_dim
        at_least("in_dim", self.in_dim, 1)
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(children, parents, self.in_dim))
        self.bias = nn.Parameter(torch.zeros(children, parents))

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `self_route`."""
        assert activations is not None
        assert poses is not None
        if poses.shape[2] != self.in_dim:
            raise ValueError(
                f"SelfRouting expects poses of dimension {self.in_dim}, got shape "
                f"{tuple(poses.shape)}; build it with in_dim={poses.shape[2]}"
            )
        return self_route(votes, activations, poses, self.weight, self.bias, self.eps)
