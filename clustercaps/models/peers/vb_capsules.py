"""Capsule routing via variational Bayes (Ribeiro, Leontidis and Kollias, AAAI 2020).

The layers are those of `matrix_capsules`, with batch normalisation of the first convolution, of all
poses and of all activation logits. As in the released code, the loss is cross-entropy with the
activations, in 0 to 1, instead of logits. The coordinates of class votes are those that the code
intends, (k + 1) / (10 F); a wrong axis makes it add the same value everywhere.
"""

from collections.abc import Sequence

from torch import nn

from clustercaps.models.peers.matrix_capsules import MatrixCapsNet, MatrixDesign
from clustercaps.models.preset import Preset, Recipe
from clustercaps.utils.sizes import Size


class VBCapsNet(MatrixCapsNet):
    """Matrix capsules with variational Bayes routing; the defaults are those for smallNORB.

    For other arguments, see `MatrixCapsNet`.

    Args:
        iterations: Iterations of the routing in every layer.
    """

    def __init__(
        self,
        num_classes: int = 5,
        in_chans: int = 2,
        img_size: Size = 32,
        width: int = 64,
        types: Sequence[int] = (16, 32, 16),
        side: int = 4,
        iterations: int = 3,
        coordinates: str = "fractions",
        coordinate_indices: Sequence[int] | None = None,
        checkpoint: bool = False,
    ) -> None:
        options = {"iterations": iterations}
        design = MatrixDesign("vb", options, options, batch_norm=True)
        sizes = (num_classes, in_chans, img_size, width, types, side)
        super().__init__(design, *sizes, coordinates, coordinate_indices, checkpoint)
        assert self.primary.logits is not None
        nn.init.kaiming_uniform_(self.conv.weight)
        nn.init.xavier_uniform_(self.primary.poses.weight)
        nn.init.xavier_uniform_(self.primary.logits.weight)


# Ribeiro et al. 2020, from the released code, which has no schedule.
RECIPE: Recipe = {
    "epochs": 300,
    "batch_size": 128,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "constant",
    "weight_decay": 0.0,
}

PAPER = 'Ribeiro, Leontidis and Kollias, "Capsule routing via variational Bayes", AAAI 2020'
CHOICES = (
    "The released code adds the same coordinate everywhere, by an indexing error; this network "
    "adds positions, as the code intends. Which networks had the published 172K and 323K "
    "parameters is unknown."
)

PRESETS = {
    "vb_smallnorb": Preset(
        VBCapsNet,
        "variational Bayes routing (Ribeiro 2020), smallNORB variant {64,16,32,16}",
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("smallnorb",),
    ),
    "vb_small": Preset(
        VBCapsNet,
        "variational Bayes routing, {64,8,16,16}",
        {"types": [8, 16, 16]},
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("smallnorb",),
    ),
    "vb_large": Preset(
        VBCapsNet,
        "variational Bayes routing, {64,32,32,32}",
        {"num_classes": 10, "in_chans": 3, "types": [32, 32, 32]},
        recipe=RECIPE,
        paper=PAPER,
        choices=CHOICES,
        img_size=32,
        data=("svhn", "cifar10"),
    ),
}
