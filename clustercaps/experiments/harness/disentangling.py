"""What dimensions, random directions and fitted directions of a class capsule change.

Every direction is measured from one end to the other: within the paper's range of 0.25, and within
2 standard deviations of each dimension over the images of a class.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from clustercaps.experiments.harness.capsule_directions import (
    best_axis_share,
    by_class,
    deviations,
    explained,
    halves,
    intended_share,
    orthonormal,
    own_capsules,
    property_directions,
)
from clustercaps.experiments.harness.cells import Row
from clustercaps.experiments.harness.digit_properties import (
    concentration,
    effects,
    measure_properties,
)
from clustercaps.experiments.harness.measured_cells import View, rounded
from clustercaps.experiments.harness.pictures import pack

REACH, DEVIATIONS, STEPS = 0.25, 2, 11
SHOWN_CLASS = 3


def look(view: View, options: Mapping[str, Any], chance: torch.Generator) -> Row:
    """Columns of all measurements, and one image as its capsule moves."""
    capsules, draw_as = own_capsules(view)
    draw = draw_as(view.labels)
    dim = capsules.shape[1]
    scale = measure_properties(view.pixels).std(0)
    random = torch.randn(options["random_directions"], dim, generator=chance)
    random /= random.norm(dim=1, keepdim=True)
    wide = DEVIATIONS * deviations(capsules, view.labels)
    columns: Row = {
        **{"looked_at": len(capsules), "capsule_dim": dim},
        "drawn_mse": float((draw(capsules) - view.pixels).square().mean()),
        "capsule_length": float(capsules.norm(dim=1).mean()),
        "dimension_sd": float(wide.mean() / DEVIATIONS),
    }
    ours = torch.empty(0)
    for prefix, reach in {"": torch.tensor(REACH), "wide_": wide}.items():
        ours, theirs = (
            effects(draw, capsules, ways[:, None] * reach, scale)
            for ways in (torch.eye(dim), random)
        )
        found = compared(by_class(ours, view.labels), by_class(theirs, view.labels))
        columns |= {prefix + name: value for name, value in found.items()}
    fit = halves(view.labels)
    # The loop ends with the wide range.
    fitted = property_directions(by_class(ours[fit], view.labels[fit])).float()
    columns["axis_share"] = float(
        best_axis_share(*(by_class(ours[half], view.labels[half]) for half in (fit, ~fit)))
    )
    columns |= measure_fitted(view, fit, fitted, wide)
    # Of a class whose digits have curves.
    shown = ~fit & (view.labels == SHOWN_CLASS)
    example = int(shown.nonzero()[0])
    drawn = draw_as(view.labels[example : example + 1])
    own = fitted[view.labels.unique(return_inverse=True)[1][example]]
    moves = {
        "strips": REACH * torch.eye(dim),
        "wide_strips": torch.diag(wide[example]),
        "fitted_strips": REACH * torch.nn.functional.normalize(own * wide[example], dim=1),
        "wide_fitted_strips": own * wide[example],
    }
    pictures = {name: pack(strips(drawn, capsules[example], w)) for name, w in moves.items()}
    return {**columns, **pictures}


def compared(
    ours: Float[Tensor, "classes dim 5"], theirs: Float[Tensor, "classes directions 5"]
) -> Row:
    """Columns that compare the effects of dimensions with those of random directions."""
    sharp, usual = concentration(ours), concentration(theirs)
    # Within its class, since the dimensions of different classes are unrelated.
    above = sharp > usual.quantile(0.95, dim=1, keepdim=True)
    return {
        "concentration": float(sharp.mean()),
        "random_concentration": float(usual.mean()),
        "above_random_fraction": float(above.double().mean()),
        "effect": float(ours.abs().sum(-1).mean()),
        "random_effect": float(theirs.abs().sum(-1).mean()),
        "effects": rounded(ours.abs().mean(0), 4),
    }


def measure_fitted(
    view: View,
    fit: Bool[Tensor, " batch"],
    fitted: Float[Tensor, "classes properties dim"],
    wide: Float[Tensor, "batch dim"],
) -> Row:
    """Columns of the fitted directions, and of an orthonormal version, on the other images.

    Args:
        view: A network with class capsules, and images.
        fit: The images that the directions were fitted on.
        fitted: A direction per class and property, in units of `wide`.
        wide: Two standard deviations of each dimension, for each image.
    """
    capsules, draw_as = own_capsules(view)
    properties = measure_properties(view.pixels)
    labels, index = view.labels[~fit], view.labels.unique(return_inverse=True)[1]
    columns: Row = {"explained": rounded(explained(capsules, properties, view.labels, fit), 4)}
    for name, directions in {"fitted": fitted, "rotated": orthonormal(fitted)}.items():
        ways = directions[index].transpose(0, 1) * wide
        found = effects(draw_as(labels), capsules[~fit], ways[:, ~fit], properties.std(0))
        changed = by_class(found, labels)
        columns[f"{name}_share"] = float(intended_share(changed))
        columns[f"{name}_effects"] = rounded(changed.abs().mean(0), 4)
    return columns


def strips(
    draw: Callable[[Tensor], Tensor],
    capsule: Float[Tensor, " dim"],
    ways: Float[Tensor, "directions dim"],
) -> Float[Tensor, "directions steps height width"]:
    """One image as its capsule moves from one end of each direction to the other.

    Args:
        draw: Decodes a capsule to an image.
        capsule: The capsule of the image's class.
        ways: From the capsule to one end; the other end is opposite.
    """
    offsets = torch.linspace(-1, 1, STEPS)
    return torch.stack(
        [
            torch.cat([draw((capsule + step * way)[None]) for step in offsets]).mean(1)
            for way in ways
        ]
    )
