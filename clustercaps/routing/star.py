"""Straight-through attentive routing: every vote says by itself how much, and whether, it counts.

After Ahmed and Torresani, "STAR-Caps: capsule networks with straight-through attentive routing",
NeurIPS 2019. This is our reconstruction, since the code is not public: known is that attention and
binary routers with straight-through gradients look at each vote alone, without iterations; sizes
and normalisation are ours. With p the vote of child i for parent j:

    attention   A_ij = sigmoid(W2 relu(W1 p + b1) + b2)     one number for each number of the vote
    router      z_ij = Wr p + br                            two logits, on and off
                y_ij = sigmoid((z_on - z_off + noise) / tau)
                d_ij = 1 if y_ij > 1/2, else 0              with the gradient of y_ij
    parent      s_j  = sum_i d_ij A_ij p_ij / sum_i d_ij A_ij

The noise is logistic, the difference of two Gumbel variables, and there only in training. A parent
whose routes are all off is zero.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from clustercaps.routing.base import Routed, Routing
from clustercaps.utils.hooks import has_hooks

# Sums of weights below this are those of parents whose routes are all off.
SMALLEST_SUM = 1e-6


class StarWeights(NamedTuple):
    """The learned numbers of the routing; matrices stand to the right of a vote.

    Attributes:
        hidden: First matrix of the attention [D, H].
        hidden_bias: Its shift [H].
        attention: Second matrix of the attention [H, D].
        attention_bias: Its shift [D].
        router: Matrix of the router [D, 2], its columns on and off.
        router_bias: Its shift [2].
    """

    hidden: Tensor
    hidden_bias: Tensor
    attention: Tensor
    attention_bias: Tensor
    router: Tensor
    router_bias: Tensor


def star_route(
    votes: Tensor, weights: StarWeights, *, noise: Tensor | None = None, temperature: float = 1.0
) -> Routed:
    """Route votes [B, I, J, D, *positions] by attention and binary decisions.

    Args:
        votes: The vote of every child for every parent.
        weights: The learned numbers, shared by all votes.
        noise: Logistic noise [B, I, J, *positions] of the decisions; none in evaluation.
        temperature: How soft the decisions' gradient is (tau).

    Returns:
        Parents, and the couplings [B, I, J, D, *positions]: they sum to 1 over the children, or to
        0 for a parent whose routes are all off.
    """
    attention = _linear(
        _linear(votes, weights.hidden, weights.hidden_bias).relu(),
        weights.attention,
        weights.attention_bias,
    ).sigmoid()
    gate = decide(router_logits(votes, weights), noise, temperature)
    open_attention = gate.unsqueeze(3) * attention
    total = open_attention.sum(1, keepdim=True)
    # Divided by 1, not by something tiny: routes that are off still get gradients, and one parent
    # without routes would send a million times those of all others.
    coupling = open_attention / torch.where(total > SMALLEST_SUM, total, 1.0)
    return Routed((coupling * votes).sum(1), None, coupling)


def router_logits(votes: Tensor, weights: StarWeights) -> Tensor:
    """How much rather each route is on than off [B, I, J, *positions]."""
    # Only the difference of the two logits matters.
    difference = weights.router[:, 0] - weights.router[:, 1]
    shift = weights.router_bias[0] - weights.router_bias[1]
    return torch.einsum("bijd...,d->bij...", votes, difference) + shift


def decide(logits: Tensor, noise: Tensor | None, temperature: float) -> Tensor:
    """0 or 1, with the gradient of the soft decision."""
    noisy = logits if noise is None else logits + noise
    soft = (noisy / temperature).sigmoid()
    # The bracket is exactly zero, so that rounding does not soften the decision.
    return (noisy > 0).to(soft.dtype) + (soft - soft.detach())


def logistic_noise(like: Tensor) -> Tensor:
    """Differences of two Gumbel variables, in the shape of a tensor."""
    # Away from 0 and 1, where the logarithms are infinite.
    return torch.rand_like(like).clamp(1e-7, 1 - 1e-7).logit()


def _linear(votes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    shaped = bias.view(-1, *[1] * (votes.ndim - 4))
    return torch.einsum("bijd...,de->bije...", votes, weight) + shaped


class StarRouting(Routing):
    """Straight-through attentive routing as a module: noisy in training, repeatable in evaluation.

    Our reconstruction of a routing whose code is not public.

    Args:
        children: Children that vote for a parent (I).
        parents: Parents (J).
        dim: Numbers in a parent capsule (D).
        temperature: How soft the decisions' gradient is.
    """

    # A parent whose routes are all off has couplings that sum to 0.
    competes_over = None

    def __init__(self, children: int, parents: int, dim: int, temperature: float = 1.0) -> None:
        super().__init__(children, parents, dim)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature
        self.hidden = nn.Linear(dim, dim)
        self.attention = nn.Linear(dim, dim)
        self.router = nn.Linear(dim, 2)
        # Routes start open: a layer whose routes are all off learns nothing.
        with torch.no_grad():
            self.router.bias.copy_(torch.tensor([1.0, -1.0]))

    @property
    def weights(self) -> StarWeights:
        """The learned numbers as `star_route` takes them."""
        layers = (self.hidden, self.attention, self.router)
        if any(has_hooks(each) for each in layers):
            raise RuntimeError(
                "StarRouting reads the weights of its linear layers and never calls them, so that "
                "their hooks would not run; use torch.nn.utils.parametrize, or hook the routing"
            )
        return StarWeights(*(part for each in layers for part in (each.weight.T, each.bias)))

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Mirror of `star_route`."""
        noise = logistic_noise(votes[:, :, :, 0]) if self.training else None
        return star_route(votes, self.weights, noise=noise, temperature=self.temperature)
