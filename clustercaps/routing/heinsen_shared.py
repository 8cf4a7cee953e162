"""Heinsen's routing of votes from shared matrices, without computing a vote.

If all children share the matrix W_j and the bias B_j of a parent, the vote of child i is
V_ij = P_i W_j + B_j, affine in its pose, and its squared distance from a mean is quadratic: with
O_j = B_j - mu_j, for the entry in row r and column h,

    (V_ij - mu_j)^2 = sum_{d<=e} [P_ird P_ire] n_de W_jdh W_jeh
                      + 2 O_jrh sum_d [P_ird] W_jdh + O_jrh^2

where n_de is 1 for d = e, else 2. The brackets and 1 are the features f_i of a child, 57 for a pose
of 4x4. Every sum over children in `heinsen_route` is then a product with the features,
sum_i D_ij f_i, and so are the log densities, sum_f k_jf f_if, with coefficients k that depend on
the parent alone. Only coupling coefficients are as large as children times parents; the votes are
16 times larger.

Expanded squares cancel where a variance is small compared with the mean, so everything is computed
in float64: the result is closer to the exact one than that of `heinsen_route` in float32.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from clustercaps.routing.base import ChildActivations, Routed
from clustercaps.routing.chunks import CHUNK, prefers_plain
from clustercaps.routing.heinsen import EPS, heinsen_route
from clustercaps.utils.derivatives import plain_gradients, wants_graph
from clustercaps.utils.errors import at_least
from clustercaps.utils.precision import wide_dtype, without_autocast

Poses = Float[Tensor, "batch children rows columns"]
Matrices = Float[Tensor, "parents columns out_columns"]
Biases = Float[Tensor, "parents rows out_columns"]
PerParent = Float[Tensor, "1 parents"]


def heinsen_route_shared(
    poses: Poses,
    activations: ChildActivations,
    weight: Matrices,
    bias: Biases,
    beta_use: PerParent,
    beta_ignore: PerParent,
    *,
    iterations: int = 3,
) -> Routed:
    """Route the votes V_ij = P_i W_j + B_j of all children as `heinsen_route` does.

    Args:
        poses: Poses P of the children.
        activations: Activations of the children, as logits.
        weight: The matrix W of every parent.
        bias: The bias B of every parent.
        beta_use: Benefit per unit of used data, shared by all children.
        beta_ignore: Cost per unit of ignored data, likewise.
        iterations: Number of iterations.
    """
    at_least("iterations", iterations, 1)
    inputs = (poses, activations, weight, bias, beta_use, beta_ignore)
    dtype = torch.promote_types(poses.dtype, weight.dtype)
    with without_autocast(poses):
        if prefers_plain(poses):
            wide = [tensor.to(wide_dtype(dtype)) for tensor in inputs]
            capsules, scores, coupling = _plain_route(iterations, *wide)
        else:
            capsules, scores, coupling = SharedRoute.apply(iterations, *inputs)
    return Routed(capsules.to(dtype), scores, coupling)


def shared_votes(
    poses: Poses, weight: Matrices, bias: Biases
) -> Float[Tensor, "batch children parents dim"]:
    """The votes P_i W_j + B_j."""
    # In memory [B, parents, children, dim]: the sums over children then need no copy.
    votes = torch.einsum("bicd,jdh->bjich", poses, weight).contiguous() + bias.unsqueeze(1)
    return votes.flatten(3).transpose(1, 2)


def _plain_route(
    iterations: int,
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    bias: Tensor,
    use: Tensor,
    ignore: Tensor,
) -> tuple[Tensor, ...]:
    votes = shared_votes(poses, weight, bias)
    routed = heinsen_route(votes, activations, use, ignore, iterations=iterations)
    assert routed.activations is not None
    return routed.capsules, routed.activations, routed.coupling


class SharedRoute(torch.autograd.Function):
    """`feature_route` for a few images at a time, which the backward pass computes again."""

    @staticmethod
    def forward(ctx: Any, iterations: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Capsules, their activations and the coupling coefficients."""
        ctx.save_for_backward(*inputs)
        ctx.iterations = iterations
        ctx.set_materialize_grads(False)
        poses, activations, *shared = inputs
        parts = [
            feature_route(iterations, *some, *shared)
            for some in zip(*_split(shared[0], poses, activations), strict=True)
        ]
        capsules, scores, coupling = (torch.cat(part) for part in zip(*parts, strict=True))
        if iterations == 1:
            ctx.mark_non_differentiable(coupling)
        return capsules, scores, coupling

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Of all inputs, a few images at a time unless a graph is wanted."""
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[1:]
        given = [n for n, gradient in enumerate(gradients) if gradient is not None]
        known = [gradient for gradient in gradients if gradient is not None]
        if not known:
            return None, *(None for _ in inputs)

        def route(*tensors: Tensor) -> tuple[Tensor, ...]:
            results = feature_route(ctx.iterations, *tensors)
            return tuple(results[n] for n in given)

        if wants_graph(known[0]):
            return None, *plain_gradients(route, inputs, known, needed)
        poses, activations, *shared = inputs
        found = [
            plain_gradients(route, (p, a, *shared), some, needed)
            for p, a, *some in zip(*_split(shared[0], poses, activations, *known), strict=True)
        ]
        columns = list(zip(*found, strict=True))
        of_images = (torch.cat(each) if each[0] is not None else None for each in columns[:2])
        return None, *of_images, *(None if each[0] is None else sum(each) for each in columns[2:])


class Features(NamedTuple):
    """What the children contribute to every sum.

    Attributes:
        values: The features f [B, features, I]: products of entries, entries, 1.
        present: The same, multiplied by sigmoid(a_i).
        products: The coefficients n_de W_jdh W_jeh of the products [J, d<=e, H].
    """

    values: Tensor
    present: Tensor
    products: Tensor


def feature_route(
    iterations: int,
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    bias: Tensor,
    use: Tensor,
    ignore: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Capsules [B, J, D], their activations and the coupling coefficients [B, I, J]."""
    narrow = wide_dtype(torch.promote_types(poses.dtype, weight.dtype))
    poses, activations = poses.double(), activations.double()
    weight, bias, use, ignore = weight.double(), bias.double(), use.double(), ignore.double()
    children, parents, entries = poses.shape[1], weight.shape[0], bias[0].numel()
    features = _features(poses, activations, weight)
    # The same for all parents in the first iteration.
    sums = (features.present.sum(2) / parents).unsqueeze(1).expand(-1, parents, -1)
    total = activations.sigmoid().sum(1, keepdim=True)
    coupling = poses.new_full((len(poses), parents, children), 1 / parents)
    for step in range(iterations):
        used = sums[..., -1]
        scores = use * used - ignore * (total - used)
        moments = sums / (used + EPS).unsqueeze(2)
        share = moments[..., -1, None, None]
        means = moments[..., -1 - entries : -1].unflatten(2, poses.shape[2:])
        moved = means @ weight
        capsules = moved + share * bias
        if step == iterations - 1:
            break
        off = bias - capsules
        squares = moments[..., : -1 - entries].unflatten(2, (poses.shape[2], -1))
        variance = squares @ features.products + 2 * off * moved + share * off.square() + EPS
        precision = 0.5 / variance
        constant = (precision * off.square()).sum((2, 3)) + 0.5 * variance.log().sum((2, 3))
        coefficients = (
            -(precision @ features.products.mT).flatten(2),
            -2 * ((precision * off) @ weight.mT).flatten(2),
            (F.logsigmoid(scores) - constant).unsqueeze(2),
        )
        coupling = torch.bmm(torch.cat(coefficients, 2), features.values).softmax(1)
        # The last iteration needs no squares.
        start = 0 if step < iterations - 2 else -1 - entries
        sums = torch.bmm(coupling, features.present[:, start:].mT)
    coupling = coupling.transpose(1, 2)
    return capsules.flatten(2).to(narrow), scores.to(narrow), coupling.to(narrow)


def _features(poses: Tensor, activations: Tensor, weight: Tensor) -> Features:
    first, second = torch.triu_indices(poses.shape[3], poses.shape[3], device=poses.device)
    entries = poses.permute(0, 2, 3, 1)
    products = entries[:, :, first] * entries[:, :, second]
    ones = torch.ones_like(entries[:, 0, :1])
    values = torch.cat([products.flatten(1, 2), entries.flatten(1, 2), ones], 1)
    twice = torch.where(first == second, 1.0, 2.0).to(weight.dtype)
    of_weights = twice.unsqueeze(1) * weight[:, first] * weight[:, second]
    return Features(values, values * activations.sigmoid().unsqueeze(1), of_weights)


def _split(weight: Tensor, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Tensors cut into images whose coupling coefficients fit into `CHUNK` bytes."""
    children = tensors[0].shape[1]
    size = max(1, CHUNK // max(1, 8 * children * weight.shape[0]))
    return [tensor.split(size) for tensor in tensors]
