"""The authors' released network, from the user's own checkout. None of it is in this package.

Its last layer is set to as many channels as the others, so that it does the same work as ours. Only
the head differs, one linear unit shared by these channels, whose cost is negligible.
"""

import importlib.util
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clustercaps.bench.cases import CPU, Case, Workload, build, capsule_layers
from clustercaps.bench.check import CHECKED_IMAGES, relative_error

NAME = "official"
FILE = Path("src") / "capsule_network.py"
# We add 1e-6 to the variance of the votes, the released code adds nothing: close, never equal.
ALLOWED = 1e-2


def load_class(folder: Path) -> Any:
    """The class `CapsuleNetwork` of the released code; executes its file."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(
            f"--official expects a checkout of the authors' released code, with the file {FILE}; "
            f"{folder} has no such file"
        )
    spec = importlib.util.spec_from_file_location("official_capsule_network", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return module.CapsuleNetwork
    # Code of others can fail in any way.
    except Exception as error:
        raise ValueError(f"{path} is not the authors' released network: {error!r}") from error


def build_official(case: Case, folder: Path, device: torch.device = CPU) -> Workload:
    """A case with the released code, with the same weights and images as ours."""
    if not case.model.startswith("m"):
        raise ValueError(f"--official supports only the M-variants, not {case.model}")
    if case.size % 4:
        raise ValueError(f"--official needs a --size divisible by 4, got {case.size}")
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
    return Workload(theirs, ours.x, ours.target % last.out_channels).to(device)


@torch.no_grad()
def check_official(case: Case, folder: Path, device: torch.device = CPU) -> float:
    """Relative error of the released code against ours, with the same weights.

    Raises:
        ValueError: The error is so large that the two compute different things.
    """
    few = Case(case.model, case.in_chans, case.size, min(case.batch, CHECKED_IMAGES))
    theirs, ours = build_official(few, folder, device), build(few, "reference", device)
    network: Any = ours.module
    classifier: Any = theirs.module.get_submodule("classifier")
    expected = classifier(network.forward_features(ours.x).flatten(2)).squeeze()
    error = relative_error(theirs.module(theirs.x), expected)
    if not error <= ALLOWED:
        raise ValueError(
            f"the code in {folder} does not match our {case.name}: its output is off by "
            f"{error:.1e}, allowed {ALLOWED:.0e}; nothing was timed"
        )
    return error
