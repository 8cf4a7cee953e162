"""The counter of PyTorch gives the same number for the fused operators as for the reference."""

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import clustercaps as cc
from clustercaps.kernels import cluster_cpu


def fused_forward(model: torch.nn.Module, images: Tensor) -> Tensor:
    """M1 through the operators themselves: the counter's hooks on modules lead around them."""
    capsules = images.unsqueeze(1)
    for layer in model.capsules.layers:
        vote, norm = layer.vote, layer.norm
        window = (layer.stride, layer.padding, layer.clusters, layer.votes, layer.out_channels)
        numbers = (True, norm.weight, norm.bias, norm.eps)
        computed = cluster_cpu.cluster_capsules(
            capsules, vote.weight, vote.bias, *window, False, layer.eps, *numbers
        )
        assert computed is not None
        capsules = computed
    return model.head(capsules.flatten(1))


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("leaf", [False, True])
def test_m1_counts_as_its_convolutions(train: bool, frozen: bool, leaf: bool) -> None:
    model = cc.create_model("m1", in_chans=1, img_size=16)
    # What needs no gradient is not counted.
    model.capsules.layers[1].requires_grad_(not frozen)
    images = torch.rand(3, 1, 16, 16, requires_grad=leaf and train)

    def counted(forward) -> tuple[int, set[str]]:
        with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(train):
            logits = forward(images)
            if train:
                logits.sum().backward()
        names = {str(operator) for operator in counter.get_flop_counts()["Global"]}
        return counter.get_total_flops(), {name for name in names if "capsules" in name}

    for layer in model.capsules.layers:
        layer.backend = "reference"
    reference, none = counted(model)
    fused, operators = counted(lambda images: fused_forward(model, images))
    assert fused == reference > 0
    assert not none
    expected = ["fused_capsules", "fused_capsules_grad"] if train else ["inferred_capsules"]
    assert operators == {f"clustercaps.{name}" for name in expected}
