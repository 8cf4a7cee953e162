"""Dynamic routing: parents compete for every child, and attract the children that agree with them.

Sabour, Frosst and Hinton, "Dynamic routing between capsules", NeurIPS 2017.

    b_ij = 0                                    for every image
    repeat T times:
        c_i. = softmax over parents of b_i.     leaky: with an extra parent of logit 0
        s_j  = sum_i c_ij u_ij
        v_j  = squash(s_j)                      |v_j| = |s_j|^2 / (1 + |s_j|^2)
        b_ij = b_ij + <u_ij, v_j>

The softmax is over parents; some public ports take it over children, which is a different method.
Gradients flow through all iterations, as in the released code, unless `detach_inner` is set.
"""

from typing import Any

import torch
from torch import Tensor

from clustercaps.routing.agreement import Iterations, differentiate, iterate
from clustercaps.routing.base import Routed, Routing, agreement, weighted_votes
from clustercaps.routing.chunks import chunks, prefers_plain
from clustercaps.routing.squash import length, squash
from clustercaps.utils.derivatives import plain_gradients, wants_graph
from clustercaps.utils.errors import at_least


def dynamic_route(
    votes: Tensor,
    *,
    iterations: int = 3,
    leaky: bool = False,
    bias: Tensor | None = None,
    detach_inner: bool = False,
) -> Routed:
    """Route votes [B, I, J, D, *positions] by agreement.

    Args:
        votes: The vote of every child for every parent.
        iterations: Number of iterations (T).
        leaky: Use a leaky softmax: coupling coefficients of a child then sum to less than 1.
        bias: Added to every parent before the squash [J, D]; used in the released code.
        detach_inner: Backpropagate only through the last iteration. The output is the same, its
            gradient is not.

    Returns:
        Parents, their lengths, below 1, as activations, and the coupling coefficients
        [B, I, J, ...].
    """
    at_least("iterations", iterations, 1)
    settings = (iterations, leaky, detach_inner)
    if prefers_plain(votes):
        capsules, coupling = plain_dynamic_route(votes, bias, *settings)
    else:
        capsules, coupling = DynamicRoute.apply(votes, bias, *settings)
    return Routed(capsules, length(capsules, dim=2), coupling)


def plain_dynamic_route(
    votes: Tensor, bias: Tensor | None, iterations: int, leaky: bool, detach_inner: bool
) -> tuple[Tensor, Tensor]:
    """The equations as they are written: parents and coupling coefficients."""
    # The axes of b and c: [B, I, J, *positions].
    logits = votes.new_zeros(*votes.shape[:3], *votes.shape[4:])
    inner = votes.detach() if detach_inner else votes
    for step in range(iterations):
        last = step == iterations - 1
        coupling = leaky_softmax(logits) if leaky else logits.softmax(2)
        total = weighted_votes(coupling, votes if last else inner)
        if bias is not None:
            total = total + _per_parent(bias, votes)
        capsules = squash(total, dim=2)
        if not last:
            logits = logits + agreement(inner, capsules)
    return capsules, coupling


class DynamicRoute(torch.autograd.Function):
    """`plain_dynamic_route` a few images at a time, with its gradient in closed form."""

    @staticmethod
    def forward(
        ctx: Any,
        votes: Tensor,
        bias: Tensor | None,
        iterations: int,
        leaky: bool,
        detach_inner: bool,
    ) -> tuple[Tensor, Tensor]:
        """Parents and coupling coefficients."""
        shift = None if bias is None else _per_parent(bias, votes)
        parts = [iterate(v, shift, iterations, leaky, room) for room, v in chunks(votes, votes)]
        known = [torch.cat(each) for each in zip(*parts, strict=True)]
        ctx.save_for_backward(votes, bias, *known)
        ctx.settings = (iterations, leaky, detach_inner)
        couplings, totals = (each[:, -1] for each in known)
        coupling = couplings.transpose(1, 2).contiguous()
        if iterations == 1 or (detach_inner and bias is None):
            ctx.mark_non_differentiable(coupling)
        return squash(totals, 2), coupling

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Of the votes and of the bias, from those of the parents and coupling coefficients."""
        votes, bias, *known = ctx.saved_tensors
        if wants_graph(gradients[0]):

            def plain(v: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
                return plain_dynamic_route(v, b, *ctx.settings)

            needed = ctx.needs_input_grad[:2]
            return *plain_gradients(plain, (votes, bias), gradients, needed), None, None, None
        of_votes = torch.empty_like(votes)
        of_capsules, of_coupling = gradients[0], gradients[1].transpose(1, 2)
        parts = chunks(votes, votes, *known, of_capsules, of_coupling, of_votes)
        of_shift = torch.cat(
            [
                differentiate(v, Iterations(c, t), g, g_coupling, ctx.settings[2], room, out)
                for room, v, c, t, g, g_coupling, out in parts
            ]
        )
        of_bias = None if bias is None else of_shift.sum_to_size(_per_parent(bias, votes).shape)
        return of_votes, None if of_bias is None else of_bias.view_as(bias), None, None, None


def _per_parent(bias: Tensor, votes: Tensor) -> Tensor:
    """A bias [J, D] shaped to meet parents [B, J, D, *positions]."""
    return bias.view(1, *bias.shape, *[1] * (votes.ndim - 4))


def leaky_softmax(logits: Tensor) -> Tensor:
    """Softmax over parents and an extra one with logit 0, which is dropped."""
    nobody = torch.zeros_like(logits[:, :, :1])
    return torch.cat([nobody, logits], 2).softmax(2)[:, :, 1:]


class DynamicRouting(Routing):
    """Dynamic routing as a module, without learnable parameters except the optional bias.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
        iterations: Number of iterations.
        leaky: Use a leaky softmax.
        bias: Learn a bias for every parent, as in the released code; the paper has none.
        detach_inner: Backpropagate only through the last iteration.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        dim: int,
        iterations: int = 3,
        leaky: bool = False,
        bias: bool = False,
        detach_inner: bool = False,
    ) -> None:
        super().__init__(children, parents, dim)
        at_least("iterations", iterations, 1)
        self.iterations, self.leaky, self.detach_inner = iterations, leaky, detach_inner
        # 0.1 as in the released code.
        self.bias = torch.nn.Parameter(torch.full((parents, dim), 0.1)) if bias else None

    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Apply `dynamic_route`."""
        return dynamic_route(
            votes,
            iterations=self.iterations,
            leaky=self.leaky,
            bias=self.bias,
            detach_inner=self.detach_inner,
        )
