"""Capsule layers with Heinsen's routing.

Heinsen, "An algorithm for routing capsules in all domains", arXiv 1911.00792, 2019.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.routing.base import Routed
from clustercaps.routing.heinsen import HeinsenRouting
from clustercaps.routing.heinsen_shared import heinsen_route_shared, shared_votes
from clustercaps.utils.hooks import may_bypass


class HeinsenCapsules(nn.Module):
    """Votes from affine maps, and Heinsen's routing.

    Shared matrices need no votes: `clustercaps.routing.heinsen_shared` computes the same without.

    Args:
        children: Number of children.
        parents: Number of parents.
        side: Rows and columns of a pose.
        iterations: Number of iterations.
        shared: Share matrix, bias, benefit and cost among all children of a parent.
    """

    def __init__(
        self, children: int, parents: int, side: int, iterations: int, shared: bool
    ) -> None:
        super().__init__()
        own = 1 if shared else children
        self.weight = nn.Parameter(torch.randn(own, parents, side, side) / side)
        self.bias = nn.Parameter(torch.zeros(own, parents, side, side))
        self.shared = shared
        self.routing = HeinsenRouting(children, parents, side * side, iterations, shared)

    def forward(
        self,
        poses: Float[Tensor, "batch children rows columns"],
        scores: Float[Tensor, "batch children"],
    ) -> Routed:
        """Children and their scores to parents and their scores."""
        if not self.shared:
            votes = torch.einsum("bicd,ijdh->bjich", poses, self.weight)
            votes = votes.contiguous() + self.bias.transpose(0, 1)
            return self.routing(votes.flatten(3).transpose(1, 2), scores)
        weight, bias, routing = self.weight[0], self.bias[0], self.routing
        if not may_bypass(routing, HeinsenRouting):
            return routing(shared_votes(poses, weight, bias), scores)
        gains = routing.beta_use, routing.beta_ignore
        return heinsen_route_shared(
            poses, scores, weight, bias, *gains, iterations=routing.iterations
        )
