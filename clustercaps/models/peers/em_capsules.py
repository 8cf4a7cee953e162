"""Matrix capsules with EM routing (Hinton, Sabour and Frosst, ICLR 2018).

The layers are those of `matrix_capsules`. The class with the most active capsule is the prediction,
and the spread loss requires it to lead all others by a margin that grows during training.

Initial weights, biases and inverse temperatures follow the released code. Its lambda is converted
to the paper's cost, which has a factor 1/2 that the code omits. With its biases, about 3 in 100
capsules of the convolutional layers are active at the start; with `threshold=0` half of them are,
which learns faster.
"""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from clustercaps.losses import spread_loss, spread_margin
from clustercaps.models.base import TrainingBatch
from clustercaps.models.peers.matrix_capsules import MatrixCapsNet, MatrixDesign
from clustercaps.models.preset import Preset, Recipe
from clustercaps.utils.sizes import Size

# Cost of one entry of a vote in the released code, multiplied by its learned bias.
UNIT_COST = (math.log(2 * math.pi) + 1) / 2


class EMCapsNet(MatrixCapsNet):
    """Matrix capsules with EM routing; the defaults are those for smallNORB.

    For other arguments, see `MatrixCapsNet`.

    Args:
        iterations: Iterations of EM in every layer.
        final_lambda: Inverse temperature of the convolutional layers.
        class_lambda: Inverse temperature of the class capsules, smaller since more children vote.
        smoothing: Weight of the previous mean in the new one; 0.1 in the released code.
        vote_std: Standard deviation of the initial vote matrices of the convolutional layers.
        class_std: Standard deviation of the initial vote matrices of the class capsules.
        class_threshold: Initial activation logit of a class capsule without votes, at the final
            inverse temperature: lambda times beta_a.
        margin_pace: Time scale of the margin in steps; the margin is at its maximum after 8.
        threshold: Like `class_threshold`, for the convolutional layers.
    """

    def __init__(
        self,
        num_classes: int = 5,
        in_chans: int = 2,
        img_size: Size = 32,
        width: int = 32,
        types: Sequence[int] = (32, 32, 32),
        side: int = 4,
        iterations: int = 3,
        final_lambda: float = 0.02,
        class_lambda: float = 0.005,
        smoothing: float = 0.0,
        vote_std: float = 0.3,
        class_std: float = 0.01,
        class_threshold: float = -12.5,
        coordinates: str = "centres",
        coordinate_indices: Sequence[int] | None = None,
        margin_pace: float = 5e4,
        checkpoint: bool = False,
        threshold: float = -25.0,
    ) -> None:
        def options(inverse_temperature: float, cost: float, logit: float) -> dict[str, Any]:
            betas = {"beta_u": cost * UNIT_COST, "beta_a": logit / inverse_temperature}
            shared = {"iterations": iterations, "smoothing": smoothing, **betas}
            return {**shared, "final_lambda": inverse_temperature}

        design = MatrixDesign(
            "em",
            options(final_lambda, 0.5, threshold),
            options(class_lambda, 2.0, class_threshold),
            vote_std,
            class_std,
            primary_shift=-1.0,
        )
        sizes = (num_classes, in_chans, img_size, width, types, side)
        super().__init__(design, *sizes, coordinates, coordinate_indices, checkpoint)
        if margin_pace <= 0:
            raise ValueError(f"margin_pace must be positive, got {margin_pace}")
        self.margin_pace = margin_pace
        _draw(self.conv.weight, 0.05)
        assert self.conv.bias is not None
        assert self.primary.logits is not None
        nn.init.constant_(self.conv.bias, 0.1)
        _draw(self.primary.poses.weight, 0.5)
        _draw(self.primary.logits.weight, 3.0)

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Spread loss with the margin of this step."""
        activations = self(batch.images)
        margin = spread_margin(batch.step, pace=self.margin_pace)
        return spread_loss(activations, batch.labels, margin), activations


def _draw(weight: Tensor, std: float) -> None:
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


# Hinton et al. 2018. Batch size, decay of 0.96 every 20,000 steps, weight decay and 2,000,000 steps
# from the released code; the learning rate from a reply of an author (the code has 0.01). Steps are
# counted in epochs of smallNORB, 24,300 images.
RECIPE: Recipe = {
    "epochs": 5264,
    "batch_size": 64,
    "optimizer": "adam",
    "lr": 3e-3,
    "schedule": "exponential",
    "lr_decay": 0.96,
    "decay_epochs": 52.6,
    "weight_decay": 2e-7,
}

# The same number of steps in epochs of 50,000 and 60,000 images.
CIFAR10_RECIPE: Recipe = {**RECIPE, "epochs": 2558, "decay_epochs": 25.6}

MNIST_RECIPE: Recipe = {**RECIPE, "epochs": 2132, "decay_epochs": 21.3}

PAPER = 'Hinton, Sabour and Frosst, "Matrix capsules with EM routing", ICLR 2018'
CHOICES = (
    "Routing follows the paper; the released code smooths the means and parametrises the betas "
    "differently. Initial weights and inverse temperatures follow the code, the learning rate a "
    "reply of the authors (the code has 0.01). The published errors were not reproduced."
)

PRESETS = {
    "em_smallnorb": Preset(
        EMCapsNet,
        "EM routing (Hinton 2018), smallNORB variant, 4x4 poses",
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("smallnorb",),
    ),
    "em_small": Preset(
        EMCapsNet,
        "EM routing, smaller smallNORB variant",
        {"width": 64, "types": [8, 16, 16]},
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("smallnorb",),
    ),
    "em_cifar10": Preset(
        EMCapsNet,
        "EM routing, CIFAR-10 variant: 256 channels",
        {"num_classes": 10, "in_chans": 3, "width": 256},
        recipe=CIFAR10_RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("cifar10",),
    ),
    "em_mnist": Preset(
        EMCapsNet,
        "EM routing, MNIST variant",
        {"num_classes": 10, "in_chans": 1},
        recipe=MNIST_RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=28,
        data=("mnist",),
    ),
}
