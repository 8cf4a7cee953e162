"""Networks with random weights, for tests of what is done with trained ones."""

import torch

import clustercaps as cc
from clustercaps.data.prepare import Prepare
from clustercaps.models import Preprocessing
from clustercaps.training.finished import Trained

COLOURS = {1: "grey", 2: "stereo", 3: "rgb"}


def untrained(name: str, in_chans: int = 1, img_size: int = 12, **settings: object) -> Trained:
    """A network with ten classes whose weights are the same in every process."""
    torch.manual_seed(0)
    arguments = {"num_classes": 10, "in_chans": in_chans, "img_size": img_size, **settings}
    model = cc.create_model(name, **arguments).eval()
    numbers = tuple(0.25 + 0.125 * channel for channel in range(in_chans))
    names = tuple(f"class {label}" for label in range(10))
    model.preprocessing = Preprocessing(COLOURS[in_chans], img_size, names, numbers, numbers)
    assert isinstance(Trained(model).prepare, Prepare)
    return Trained(model)
