"""The authors' network, from a user's own checkout of their code. None of it is in this package.

Their last layer is set to as many channels as the others, so that the work equals ours; what stays
different is the head, one linear unit shared by these channels, which costs nothing beside it.
"""

import importlib.util
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clustercaps.bench.cases import Case, Workload, build, capsule_layers
from clustercaps.bench.check import CHECKED_IMAGES, relative_error

NAME = "official"
FILE = Path("src") / "capsule_network.py"
# They add nothing to the variance of the votes, we add 1e-6: close, never equal.
ALLOWED = 1e-2


def load_class(folder: Path) -> Any:
    """Their class `CapsuleNetwork`; runs the file it is in."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(
            f"--official takes a checkout of the authors' code, which has {FILE}; "
            f"{folder} has no such file"
        )
    spec = importlib.util.spec_from_file_location("official_capsule_network", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return module.CapsuleNetwork
    # Somebody else's file can fail in any way: whatever it is, it is not what was asked for.
    except Exception as error:
        raise ValueError(f"{path} is not the authors' network: {error!r}") from error


def build_official(case: Case, folder: Path) -> Workload:
    """A case as the authors' code computes it, with the weights and images that ours gets."""
    if not case.model.startswith("m"):
        raise ValueError(f"--official knows the M-variants only, not {case.model}")
    if case.size % 4:
        raise ValueError(f"--official needs a --size that 4 divides, got {case.size}")
    network_class = load_class(folder)
    ours = build(case, "reference")
    layers = capsule_layers(ours.module)
    last = layers[-1]
    settings = Namespace(
        C=last.in_channels,
        K=last.votes,
        D=last.out_dim,
        class_num=last.out_channels,
        if_bias=True,
        input_img_dim=case.in_chans,
        input_img_size=case.size,
    )
    theirs: nn.Module = network_class(settings)
    with torch.no_grad():
        for number, layer in enumerate(layers, 1):
            convolutions: Any = theirs.get_submodule(f"caps_layer{number}.conv_trans")
            weights = layer.vote.weight.chunk(len(convolutions))
            assert layer.vote.bias is not None
            biases = layer.vote.bias.chunk(len(convolutions))
            for convolution, weight, bias in zip(convolutions, weights, biases, strict=True):
                convolution.weight.copy_(weight)
                convolution.bias.copy_(bias)
    return Workload(theirs, ours.x, ours.target % last.out_channels)


@torch.no_grad()
def check_official(case: Case, folder: Path) -> float:
    """How far the authors' capsules are from ours with the same weights, relative.

    Raises:
        ValueError: So far that the two do not compute the same thing.
    """
    few = Case(case.model, case.in_chans, case.size, min(case.batch, CHECKED_IMAGES))
    theirs, ours = build_official(few, folder), build(few, "reference")
    network: Any = ours.module
    classifier: Any = theirs.module.get_submodule("classifier")
    expected = classifier(network.forward_features(ours.x).flatten(2)).squeeze()
    error = relative_error(theirs.module(theirs.x), expected)
    if not error <= ALLOWED:
        raise ValueError(
            f"the code in {folder} does not compute what {case.name} does: its output is off by "
            f"{error:.1e}, allowed {ALLOWED:.0e}; nothing was timed"
        )
    return error
