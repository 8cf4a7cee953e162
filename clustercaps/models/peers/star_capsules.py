"""Capsules with straight-through attentive routing: our reconstruction of STAR-Caps.

Ahmed and Torresani, "STAR-Caps: capsule networks with straight-through attentive routing", NeurIPS
2019. The code is not public, so we claim no number of the paper for this network.
`clustercaps.routing.star` says what is known of the routing and what is ours. The layers are those
of `matrix_capsules`, without activations: with an attention of two layers and a router, shared
within a layer, they have about the paper's 318,000 parameters. Poses between the layers are
normalised, and the score of a class is the sum of its pose; both are our choice and have no
parameters.
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.models.peers.matrix_capsules import MatrixCapsNet, MatrixDesign
from clustercaps.models.preset import Preset, Recipe
from clustercaps.utils.errors import unknown
from clustercaps.utils.sizes import Size


class StarCapsReconstruction(MatrixCapsNet):
    """Matrix capsules with straight-through attentive routing; our reconstruction.

    For other arguments, see `MatrixCapsNet`.

    Args:
        temperature: Temperature of the gradient of the gates.
        pose_norm: Layer norm of poses between the capsule layers, without parameters. Without it,
            poses, as means of many votes, would shrink from layer to layer.
        readout: "sum" of a class capsule's pose, or a "linear" layer shared by the classes.
    """

    def __init__(
        self,
        num_classes: int = 5,
        in_chans: int = 2,
        img_size: Size = 32,
        width: int = 32,
        types: Sequence[int] = (32, 32, 32),
        side: int = 4,
        temperature: float = 1.0,
        pose_norm: bool = True,
        readout: str = "sum",
        coordinates: str = "centres",
        checkpoint: bool = False,
    ) -> None:
        options = {"temperature": temperature}
        # Votes have the scale of poses: an entry of a vote is a sum of `side` products.
        std = side**-0.5
        design = MatrixDesign("star", options, options, std, std, primary_bias=True)
        sizes = (num_classes, in_chans, img_size, width, types, side)
        super().__init__(design, *sizes, coordinates, checkpoint=checkpoint)
        if readout not in ("sum", "linear"):
            raise KeyError(unknown("readout", readout, ("sum", "linear")))
        self.pose_norm = pose_norm
        self.readout = nn.Linear(side**2, 1) if readout == "linear" else None

    def between(self, poses: Tensor) -> Tensor:
        """Normalise each pose to mean 0 and standard deviation 1."""
        if not self.pose_norm:
            return poses
        return F.layer_norm(poses.movedim(2, -1), (poses.shape[2],)).movedim(-1, 2)

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Class capsules to logits; with `pre_logits`, flattened."""
        if pre_logits:
            return features.flatten(1)
        return features.sum(2) if self.readout is None else self.readout(features).squeeze(2)


# Ahmed and Torresani 2019: the recipe is not public. All of this is our choice.
RECIPE: Recipe = {
    "epochs": 300,
    "batch_size": 64,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "cosine",
    "weight_decay": 0.0,
}

PAPER = (
    'Ahmed and Torresani, "STAR-Caps: capsule networks with straight-through attentive routing", '
    "NeurIPS 2019"
)
CHOICES = (
    "Neither code nor details are public: layers, the normalisation of poses, class scores and "
    "the recipe are our choice, made to fit the published size of about 318,000 parameters."
)

PRESETS = {
    "star": Preset(
        StarCapsReconstruction,
        "attentive routing after STAR-Caps (Ahmed 2019), smallNORB variant",
        reconstruction=True,
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("smallnorb",),
    ),
    "star_cifar10": Preset(
        StarCapsReconstruction,
        "attentive routing after STAR-Caps, CIFAR-10 variant",
        {"num_classes": 10, "in_chans": 3},
        reconstruction=True,
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("cifar10",),
    ),
}
