"""Every network, shrunken, learns 32 images by heart with the loss of its paper."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

import clustercaps as cc
from clustercaps.models import ImageClassifier, TrainingBatch
from clustercaps.models.registry import get_preset

CAPSNET = {"width": 16, "types": 4, "dim": 8, "img_size": 19, "in_chans": 1, "num_classes": 10}
KDE = {"widths": [16, 16], "types": 4, "dim": 8, "img_size": 32}
AR = {"width": 8, "types": 4, "primary_dim": 8, "dim": 8, "img_size": 12, "dropout": 0.0}
MATRIX = {"num_classes": 5, "in_chans": 1, "img_size": 17, "width": 16}

# Name -> settings, learning rate of Adam, steps.
NETWORKS: dict[str, tuple[Mapping[str, Any], float, int]] = {
    "m1": ({"dim": 4, "img_size": 12}, 1e-2, 30),
    "s1": ({"dim": 6, "img_size": 12}, 1e-2, 30),
    "baseline_cnn": ({"img_size": 8}, 1e-3, 20),
    "viewpoint_cnn": ({"img_size": 8}, 1e-3, 40),
    "affine_capsules": ({"img_size": 12}, 1e-2, 60),
    "affine_cnn": ({"img_size": 12}, 3e-3, 60),
    "class_capsules": ({}, 1e-2, 40),
    "capsnet": (CAPSNET, 3e-3, 60),
    "maxmin_capsnet": ({**CAPSNET, "vote_std": 0.05}, 3e-3, 40),
    "hitnet": ({"width": 16, "dim": 8, "img_size": 19}, 3e-3, 80),
    "dcnet": (
        {"layers": 3, "growth": 6, "types": 4, "dim": 8, "img_size": 15},
        3e-3,
        25,
    ),
    "dcnet3": (
        {"layers": 2, "growth": 4, "types": 2, "dims": [8, 6, 5, 8], "img_size": 21},
        3e-3,
        20,
    ),
    "ms_capsnet": ({"width": 16, "types": 3, "dim": 8, "img_size": 23}, 3e-3, 40),
    "frms_capsnet": (KDE, 3e-3, 50),
    "frem_capsnet": ({**KDE, "dim": 16}, 1e-3, 50),
    "kernel_capsnet": ({**CAPSNET, "inducing": 16}, 3e-3, 100),
    # Few children vote for a class here, so that the inverse temperature must be larger.
    "em_small": (
        {
            **MATRIX,
            "types": [4, 4, 4],
            "side": 2,
            "vote_std": 0.5,
            "class_std": 0.3,
            "class_lambda": 1.0,
            "class_threshold": 0.0,
        },
        0.01,
        30,
    ),
    "vb_small": ({**MATRIX, "types": [4, 4, 4], "side": 2}, 0.01, 25),
    "star": ({**MATRIX, "types": [4, 4, 4], "side": 3}, 0.02, 40),
    "ar_capsnet": ({**AR, "layers": 1}, 5e-3, 40),
    "ar_capsnet_cifar10": ({**AR, "layers": 2}, 5e-3, 40),
    "efficient_capsnet": ({"widths": [8, 16, 16, 32], "img_size": 15}, 5e-3, 30),
    "efficient_capsnet_smallnorb": (
        {"widths": [8, 16, 16, 32], "img_size": 25, "decoder": False},
        5e-3,
        50,
    ),
    "heinsen_smallnorb": (
        {"img_size": 12, "strides": [1, 2], "width": 16, "types": 8, "parents": 8, "side": 2},
        1e-2,
        70,
    ),
    "inverted_attention": ({"width": 16, "types": 4, "dim": 9, "img_size": 15}, 3e-3, 60),
    "inverted_attention_resnet": ({"width": 16, "types": 4, "dim": 9, "img_size": 15}, 3e-3, 40),
    "self_routing_1": ({"width": 8, "blocks": 1, "types": 8, "dim": 4, "img_size": 12}, 1e-2, 25),
    "self_routing_2": ({"width": 8, "blocks": 1, "types": 8, "dim": 4, "img_size": 12}, 1e-2, 30),
}


def test_every_kind_of_network_is_here() -> None:
    kinds = {get_preset(name).network for name in NETWORKS}
    assert {get_preset(name).network for name in cc.list_models()} == kinds


@pytest.mark.parametrize("name", NETWORKS)
def test_learns_32_images_by_heart(name: str) -> None:
    settings, rate, steps = NETWORKS[name]
    model = cc.create_model(name, **{"num_classes": 10, **settings})
    images = torch.rand(32, model.in_chans, *model.img_size)
    labels = torch.arange(32) % model.num_classes
    # Prepared images have mean 0 and deviation 1.
    prepared = (images - images.mean()) / images.std()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    right = torch.zeros(32, dtype=torch.bool)
    # Usually the given steps do; rounding, which differs between machines, may ask for more.
    for step in range(4 * steps):
        optimizer.zero_grad()
        loss, _ = model.training_loss(
            TrainingBatch(prepared, labels, images, step, train_images=32)
        )
        loss.mean().backward()
        optimizer.step()
        if (step + 1) % steps == 0:
            right = answers(model, prepared) == labels
            if right.all():
                break
    assert right.all(), f"{int(right.sum())} of 32 right"


@torch.no_grad()
def answers(model: ImageClassifier, images: torch.Tensor) -> torch.Tensor:
    # So few steps leave running statistics behind the weights.
    for _ in range(60 if any("running" in key for key in model.state_dict()) else 0):
        model(images)
    predicted = model.eval()(images).argmax(1)
    model.train()
    return predicted
