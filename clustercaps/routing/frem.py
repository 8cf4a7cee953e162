"""FREM: routing as fitting a mixture of kernels with a common bandwidth.

Zhang, Zhao, Wu and Zhou, "Fast dynamic routing based on weighted kernel density estimation", arXiv
1805.10807, 2018. A reconstruction: the code is not public, and bandwidth, number of iterations and
activations of the parents are our choices.

    r_ij = 1 / parents                                          for every image
    repeat T times:
        v_j  = sum_i a_i r_ij u_ij / sum_i a_i r_ij             M-step: means
        pi_j = sum_i a_i r_ij / sum_i a_i                       M-step: shares
        k_ij = max(0, 1 - |u_ij - v_j|^2 / h^2)                 or exp(-|u_ij - v_j|^2 / (2 h^2))
        r_ij = pi_j k_ij / sum_j pi_j k_ij                      E-step; 1 / parents if all k are 0

The activation of a parent is its share pi_j of the children, so activations of parents sum to 1.
The routing is equivariant: rotating or shifting all votes rotates or shifts the capsules.
"""

import math

import torch
from torch import Tensor

from clustercaps.routing.base import ChildActivations, Routed, Routing, Votes
from clustercaps.routing.frms import mean_of_votes, squared_distances
from clustercaps.routing.squash import SMALLEST
from clustercaps.utils.errors import at_least, unknown

KERNELS = ("epanechnikov", "gaussian")
# Below this, kernel values are rounding errors, and a child is divided evenly instead.
NO_SUPPORT = 1e-12


def frem_route(
    votes: Votes,
    activations: ChildActivations | None = None,
    *,
    iterations: int = 3,
    bandwidth: float | Tensor = 1.0,
    kernel: str = "epanechnikov",
) -> Routed:
    """Route votes [B, I, J, D, *positions] by fitting a mixture of kernels.

    Args:
        votes: The vote of every child for every parent.
        activations: Weights of the children; None for 1.
        iterations: Number of iterations (T).
        bandwidth: Bandwidth of the kernel (h), about the distance of votes from their parent.
        kernel: "epanechnikov", which ignores votes beyond h, or "gaussian".

    Returns:
        Parents, their shares of the children, and the coupling coefficients r [B, I, J, ...].
    """
    check_frem(iterations, kernel)
    if activations is None:
        activations = votes.new_ones(*votes.shape[:2], *votes.shape[4:])
    parents = votes.shape[2]
    coupling = torch.full_like(votes[:, :, :, 0], 1 / parents)
    everybody = activations.sum(1, keepdim=True) + SMALLEST
    for step in range(iterations):
        capsules = mean_of_votes(coupling, votes, activations)
        shares = torch.einsum("bij...,bi...->bj...", coupling, activations) / everybody
        if step < iterations - 1:
            scaled = squared_distances(votes, capsules) / bandwidth**2
            near = (1 - scaled).relu() if kernel == "epanechnikov" else (-scaled / 2).exp()
            joint = shares.unsqueeze(1) * near
            # Divided evenly if no parent is near; negligible otherwise.
            coupling = (joint + NO_SUPPORT / parents) / (joint.sum(2, keepdim=True) + NO_SUPPORT)
    return Routed(capsules, shares, coupling)


def check_frem(iterations: int, kernel: str) -> None:
    """Raise an error for invalid options."""
    at_least("iterations", iterations, 1)
    if kernel not in KERNELS:
        raise ValueError(unknown("kernel", kernel, KERNELS))


class FREMRouting(Routing):
    """FREM as a module, optionally with a learnable bandwidth.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        iterations: Number of iterations.
        bandwidth: Initial bandwidth of the kernel (h).
        learn_bandwidth: Whether to learn log h, a single parameter.
        kernel: "epanechnikov" or "gaussian".
    """

    takes_activations = True
    log_bandwidth: Tensor

    def __init__(
        self,
        children: int,
        parents: int,
        dim: int,
        iterations: int = 3,
        bandwidth: float = 1.0,
        learn_bandwidth: bool = True,
        kernel: str = "epanechnikov",
    ) -> None:
        super().__init__(children, parents, dim)
        check_frem(iterations, kernel)
        if bandwidth <= 0:
            raise ValueError(f"bandwidth must be positive, got {bandwidth}")
        self.iterations, self.kernel = iterations, kernel
        start = torch.tensor(math.log(bandwidth))
        if learn_bandwidth:
            self.log_bandwidth = torch.nn.Parameter(start)
        else:
            self.register_buffer("log_bandwidth", start)

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `frem_route`."""
        # In the precision of the votes: routing in half precision would overflow.
        width = self.log_bandwidth.to(votes.dtype).exp()
        return frem_route(
            votes,
            activations,
            iterations=self.iterations,
            bandwidth=width,
            kernel=self.kernel,
        )
