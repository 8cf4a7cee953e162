"""Straight-through attentive routing: an attention weight and a binary gate for every vote.

After Ahmed and Torresani, "STAR-Caps: capsule networks with straight-through attentive routing",
NeurIPS 2019. This is our reconstruction, since the code is not public. It is known that attention
and binary routers with straight-through gradients process each vote separately, without iterations;
sizes and normalisation are ours. With p the vote of child i for parent j:

    attention   A_ij = sigmoid(W2 relu(W1 p + b1) + b2)     one value per entry of the vote
    router      z_ij = Wr p + br                            two logits, on and off
                y_ij = sigmoid((z_on - z_off + noise) / tau)
                d_ij = 1 if y_ij > 1/2, else 0              with the gradient of y_ij
    parent      s_j  = sum_i d_ij A_ij p_ij / sum_i d_ij A_ij

The noise is logistic, the difference of two Gumbel variables, and used only in training. A parent
whose routes are all off is zero.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from clustercaps.routing.base import Routed, Routing
from clustercaps.utils.hooks import has_hooks

# If the sum of weights is below this, all routes of a parent are off.
SMALLEST_SUM = 1e-6


class StarWeights(NamedTuple):
    """The parameters of the routing; votes are multiplied by matrices from the right.

    Attributes:
        hidden: First matrix of the attention [D, H].
        hidden_bias: Its bias [H].
        attention: Second matrix of the attention [H, D].
        attention_bias: Its bias [D].
        router: Matrix of the router [D, 2], with columns on and off.
        router_bias: Its bias [2].
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
    """Route votes [B, I, J, D, *positions] by attention and binary gates.

    Args:
        votes: The vote of every child for every parent.
        weights: The parameters, shared by all votes.
        noise: Logistic noise [B, I, J, *positions] of the gates; None in evaluation.
        temperature: Temperature of the gates' gradient (tau).

    Returns:
        Parents, and the coupling coefficients [B, I, J, D, *positions], which sum to 1 over the
        children, or to 0 for a parent whose routes are all off.
    """
    attention = _linear(
        _linear(votes, weights.hidden, weights.hidden_bias).relu(),
        weights.attention,
        weights.attention_bias,
    ).sigmoid()
    gate = decide(router_logits(votes, weights), noise, temperature)
    open_attention = gate.unsqueeze(3) * attention
    total = open_attention.sum(1, keepdim=True)
    # Divided by 1, not by a tiny number: routes that are off still get gradients, and those of a
    # parent without routes would be a million times larger than all others.
    coupling = open_attention / torch.where(total > SMALLEST_SUM, total, 1.0)
    return Routed((coupling * votes).sum(1), None, coupling)


def router_logits(votes: Tensor, weights: StarWeights) -> Tensor:
    """Logit of each route being on [B, I, J, *positions]."""
    # Only the difference of the two logits matters.
    difference = weights.router[:, 0] - weights.router[:, 1]
    shift = weights.router_bias[0] - weights.router_bias[1]
    return torch.einsum("bijd...,d->bij...", votes, difference) + shift


def decide(logits: Tensor, noise: Tensor | None, temperature: float) -> Tensor:
    """0 or 1, with the gradient of the sigmoid (straight-through)."""
    noisy = logits if noise is None else logits + noise
    soft = (noisy / temperature).sigmoid()
    # The term in brackets is exactly zero, so the result is exactly 0 or 1.
    return (noisy > 0).to(soft.dtype) + (soft - soft.detach())


def logistic_noise(like: Tensor) -> Tensor:
    """Differences of two Gumbel variables, with the shape of a tensor."""
    # Away from 0 and 1, where the logit is infinite.
    return torch.rand_like(like).clamp(1e-7, 1 - 1e-7).logit()


def _linear(votes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    shaped = bias.view(-1, *[1] * (votes.ndim - 4))
    return torch.einsum("bijd...,de->bije...", votes, weight) + shaped


class StarRouting(Routing):
    """Straight-through attentive routing as a module: noisy in training, deterministic in eval.

    A reconstruction of a routing whose code is not public.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        temperature: Temperature of the gates' gradient.
    """

    # The coupling coefficients of a parent whose routes are all off sum to 0.
    competes_over = None

    def __init__(self, children: int, parents: int, dim: int, temperature: float = 1.0) -> None:
        super().__init__(children, parents, dim)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature
        self.hidden = nn.Linear(dim, dim)
        self.attention = nn.Linear(dim, dim)
        self.router = nn.Linear(dim, 2)
        # Routes start on: a layer whose routes are all off cannot learn.
        with torch.no_grad():
            self.router.bias.copy_(torch.tensor([1.0, -1.0]))

    @property
    def weights(self) -> StarWeights:
        """The parameters for `star_route`."""
        layers = (self.hidden, self.attention, self.router)
        if any(has_hooks(each) for each in layers):
            raise RuntimeError(
                "StarRouting uses the weights of its linear layers without calling them, so their "
                "hooks would not run; use torch.nn.utils.parametrize, or hook the routing"
            )
        return StarWeights(*(part for each in layers for part in (each.weight.T, each.bias)))

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `star_route`."""
        noise = logistic_noise(votes[:, :, :, 0]) if self.training else None
        return star_route(votes, self.weights, noise=noise, temperature=self.temperature)
