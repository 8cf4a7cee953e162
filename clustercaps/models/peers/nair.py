"""The capsule network of dynamic routing as a stress test, one network without an ensemble.

Nair, Doshi and Keselj, "Pushing the limits of capsule networks", 2018: no new layer, but the
network for MNIST on harder images, with decoder, three iterations and nothing made for the data.
It has 8,215,568 parameters for 28x28 grey images and 11,749,120 for 32x32 in colour, though the
literature quotes 8.2M for all. How the images were prepared, and how long it trained, is not known.
"""

from clustercaps.models.peers.capsnet import CapsNet
from clustercaps.models.preset import UNKNOWN_RECIPE, Preset

PAPER = 'Nair, Doshi and Keselj, "Pushing the limits of capsule networks", 2018'

PRESETS = {
    "nair": Preset(
        CapsNet,
        "dynamic routing as stress test (Nair 2018): the MNIST form on any image",
        {"in_chans": 3},
        recipe=UNKNOWN_RECIPE,
        paper=PAPER,
        choices=(
            "How images were prepared, and how long the network was trained, is not known: the "
            "recipe is our choice."
        ),
        img_size=32,
        data=("fashion-mnist", "svhn", "cifar10"),
        sizes={"fashion-mnist": 28},
    ),
}
