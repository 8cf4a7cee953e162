"""FREM: routing as the fit of a mixture, whose parts are kernels of one width.

Zhang, Zhao, Wu and Zhou, "Fast dynamic routing based on weighted kernel density estimation", arXiv
1805.10807, 2018. A reconstruction: the paper's code is not public, and its width of the kernel, its
iterations and its activations of parents are our choices.

    r_ij = 1 / parents                                          for every image anew
    repeat T times:
        v_j  = sum_i a_i r_ij u_ij / sum_i a_i r_ij             M-step: means
        pi_j = sum_i a_i r_ij / sum_i a_i                       M-step: shares
        k_ij = max(0, 1 - |u_ij - v_j|^2 / h^2)                 or exp(-|u_ij - v_j|^2 / (2 h^2))
        r_ij = pi_j k_ij / sum_j pi_j k_ij                      E-step; 1 / parents if all k are 0

A parent's activation is its share pi_j of the children, so that activations of parents sum to 1.
It moves with the votes: turn or shift them all, and the capsules turn and shift along.
"""

import math

import torch
from torch import Tensor

from clustercaps.routing.base import ChildActivations, Routed, Routing, Votes
from clustercaps.routing.frms import mean_of_votes, squared_distances
from clustercaps.routing.squash import SMALLEST
from clustercaps.utils.errors import at_least, unknown

KERNELS = ("epanechnikov", "gaussian")
# Below this, shares of the kernels are rounding errors, and a child is split evenly instead.
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
        activations: How much each child counts; None for 1.
        iterations: Times that parents are computed (T).
        bandwidth: Width of the kernel (h), about the distance of votes to their parent.
        kernel: "epanechnikov", which ignores votes beyond h, or "gaussian".

    Returns:
        Parents, their shares of the children, and the couplings r [B, I, J, ...].
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
            # Even shares where no parent is near; else far too little to matter.
            coupling = (joint + NO_SUPPORT / parents) / (joint.sum(2, keepdim=True) + NO_SUPPORT)
    return Routed(capsules, shares, coupling)


def check_frem(iterations: int, kernel: str) -> None:
    """Refuse options that make no routing."""
    at_least("iterations", iterations, 1)
    if kernel not in KERNELS:
        raise ValueError(unknown("kernel", kernel, KERNELS))


class FREMRouting(Routing):
    """FREM as a module; what it can learn is the width of the kernel.

    Args:
        children: Children that vote for a parent (I).
        parents: Parents (J).
        dim: Numbers in a parent capsule (D).
        iterations: Times that parents are computed.
        bandwidth: First width of the kernel (h).
        learn_bandwidth: Learn log h, one number for the layer, or leave it.
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
        """Mirror of `frem_route`."""
        # Learned numbers follow the votes' precision, as routing in half precision would overflow.
        width = self.log_bandwidth.to(votes.dtype).exp()
        return frem_route(
            votes,
            activations,
            iterations=self.iterations,
            bandwidth=width,
            kernel=self.kernel,
        )
