"""Directions in the space of class capsules: dimensions, and directions fitted to a property.

A capsule need not be aligned with properties: a rotation of its space, undone by the first layer of
the decoder, gives the same network. So dimensions are compared with the best direction of every
property, fitted on one half of the images of a class and tested on the other.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clustercaps.experiments.harness.measured_cells import View
from clustercaps.models import ClassCapsuleNet
from clustercaps.models.base import LengthClassifier

# Ridge penalty of the linear fit, relative to the variance of a dimension.
RIDGE = 1e-2


def own_capsules(
    view: View,
) -> tuple[Float[Tensor, "batch dim"], Callable[[Tensor], Callable[[Tensor], Tensor]]]:
    """The capsule of each image's class, and a decoder from such capsules to images.

    Args:
        view: A network with class capsules, and images.
    """
    model = view.model
    assert isinstance(model, ClassCapsuleNet | LengthClassifier)
    parts: list[Any] = [model.forward_features(images) for images in view.images.split(100)]
    features = torch.cat(parts)
    classes = features.shape[1]

    def draw(labels: Tensor) -> Callable[[Tensor], Tensor]:
        def of(capsules: Tensor) -> Tensor:
            whole = capsules.new_zeros(len(capsules), classes, capsules.shape[1])
            whole[torch.arange(len(capsules)), labels] = capsules
            return model.reconstruct(whole, labels)

        return of

    return features[torch.arange(len(features)), view.labels], draw


def by_class(
    effect: Float[Tensor, "batch directions 5"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, "classes directions 5"]:
    """Mean effects over the images of each class.

    Signs are kept: a dimension that thickens one image and thins another represents neither.
    """
    return torch.stack([effect[labels == label].mean(0) for label in labels.unique()])


def deviations(
    capsules: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, "batch dim"]:
    """Standard deviation of every dimension over the images of a capsule's class."""
    found = torch.empty_like(capsules)
    for label in labels.unique():
        own = labels == label
        found[own] = capsules[own].std(0)
    return found


def halves(labels: Int[Tensor, " batch"]) -> Bool[Tensor, " batch"]:
    """Every second image of each class."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        chosen[(labels == label).nonzero().flatten()[::2]] = True
    return chosen


def property_directions(
    effect: Float[Tensor, "classes dim properties"],
) -> Float[Tensor, "classes properties dim"]:
    """Unit directions that change one property and, to first order, no other.

    Args:
        effect: Effect of every dimension on every property.
    """
    # Rows of the pseudo-inverse: the shortest solutions of w @ effect = one property.
    return torch.nn.functional.normalize(torch.linalg.pinv(effect), dim=2)


def orthonormal(
    directions: Float[Tensor, "classes properties dim"],
) -> Float[Tensor, "classes properties dim"]:
    """The nearest orthonormal directions: axes of a rotated capsule space."""
    left, _, right = torch.linalg.svd(directions, full_matrices=False)
    return left @ right


def intended_share(effect: Float[Tensor, "classes 5 5"]) -> Float[Tensor, ""]:
    """Mean share of the intended property in all effects of its direction."""
    size = effect.abs()
    return (size.diagonal(dim1=1, dim2=2) / size.sum(-1).clamp(min=1e-12)).mean()


def best_axis_share(
    before: Float[Tensor, "classes dim 5"], after: Float[Tensor, "classes dim 5"]
) -> Float[Tensor, ""]:
    """Mean share of a property in the effects of the dimension that changes it most purely.

    Args:
        before: Effects that the dimensions are chosen by.
        after: Effects on other images, which are measured.
    """
    share, tested = (
        e.abs() / e.abs().sum(2, keepdim=True).clamp(min=1e-12) for e in (before, after)
    )
    return tested.gather(1, share.argmax(1, keepdim=True)).mean()


def explained(
    capsules: Float[Tensor, "batch dim"],
    properties: Float[Tensor, "batch 5"],
    labels: Int[Tensor, " batch"],
    fit: Bool[Tensor, " batch"],
) -> Float[Tensor, "5"]:
    """Fraction of each property's variance within classes that the capsules explain linearly.

    Args:
        capsules: The capsule of each image's class.
        properties: Properties of the images.
        labels: Classes of the images.
        fit: Images that the linear maps, one per class, are fitted on; tested on the others.
    """
    left = total = torch.zeros(properties.shape[1], dtype=torch.float64)
    for label in labels.unique():
        train, test = fit & (labels == label), ~fit & (labels == label)
        mean, target = capsules[train].double().mean(0), properties[train].double().mean(0)
        x, y = capsules[train].double() - mean, properties[train].double() - target
        square = x.T @ x
        ridge = RIDGE * square.diagonal().mean() * torch.eye(len(square), dtype=x.dtype)
        weights = torch.linalg.solve(square + ridge, x.T @ y)
        true = properties[test].double() - target
        left = left + (true - (capsules[test].double() - mean) @ weights).square().sum(0)
        total = total + true.square().sum(0)
    return 1 - left / total.clamp(min=1e-12)
