"""The capsule network of dynamic routing with max-min normalisation instead of a softmax.

Zhao, Kleinhans, Sandhu, Patel and Unnikrishnan, "Capsule networks with max-min normalization",
arXiv 1903.09662, 2019. Layers and sizes are those of `capsnet`. The axis of the normalisation is
our reading; `routing_options={"axis": "children"}` is the other.
"""

from clustercaps.models.peers.capsnet import RECIPE, CapsNet
from clustercaps.models.preset import Preset

PAPER = (
    'Zhao, Kleinhans, Sandhu, Patel and Unnikrishnan, "Capsule networks with max-min '
    'normalization", arXiv 1903.09662, 2019'
)

PRESETS = {
    "maxmin_capsnet": Preset(
        CapsNet,
        "max-min routing (Zhao 2019) in the network of dynamic routing",
        # Coefficients near 1 give sums ten times as large as a softmax over ten classes.
        {"routing": "max_min", "vote_std": 0.01},
        reconstruction=True,
        # Our choice: at the learning rate of dynamic routing all lengths saturate.
        recipe={**RECIPE, "lr": 1e-4},
        paper=PAPER,
        choices=(
            "The axis of the normalisation is not stated: here it is over the parents of each "
            "child; the option axis of the routing changes it. Initial weights and learning rate "
            "are our choice."
        ),
        img_size=28,
        data=("mnist", "fashion-mnist", "cifar10"),
        sizes={"cifar10": 32},
    ),
}
