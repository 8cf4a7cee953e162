"""The capsule network of dynamic routing on harder datasets, one network without an ensemble.

Nair, Doshi and Keselj, "Pushing the limits of capsule networks", 2018: no new layer, but the
MNIST network on harder images, with decoder and three iterations, without tuning for the dataset.
It has 8,215,568 parameters for 28x28 grey images and 11,749,120 for 32x32 colour images, though the
literature quotes 8.2M for all. Preprocessing and training time are not known.
"""

from clustercaps.models.peers.capsnet import CapsNet
from clustercaps.models.preset import UNKNOWN_RECIPE, Preset

PAPER = 'Nair, Doshi and Keselj, "Pushing the limits of capsule networks", 2018'

PRESETS = {
    "nair": Preset(
        CapsNet,
        "dynamic routing on harder datasets (Nair 2018): the MNIST variant for any image",
        {"in_chans": 3},
        recipe=UNKNOWN_RECIPE,
        paper=PAPER,
        choices=("Preprocessing and training time are not known: the recipe is our choice."),
        img_size=32,
        data=("fashion-mnist", "svhn", "cifar10"),
        sizes={"fashion-mnist": 28},
    ),
}
