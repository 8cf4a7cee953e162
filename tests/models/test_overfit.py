"""Every network, made small, can learn 32 images by heart."""

import pytest
import torch

import clustercaps as cc
from clustercaps.models import Lesson

CAPSNET = {"width": 16, "types": 4, "dim": 8, "img_size": 19, "in_chans": 1, "num_classes": 10}
KDE = {"widths": [16, 16], "types": 4, "dim": 8, "img_size": 32}

# Name -> settings, learning rate, steps.
NETWORKS: dict[str, tuple[dict[str, object], float, int]] = {
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
    "frem_capsnet": (KDE, 3e-3, 100),
    "inverted_attention": ({"width": 16, "types": 4, "dim": 9, "img_size": 15}, 3e-3, 60),
    "inverted_attention_resnet": ({"width": 16, "types": 4, "dim": 9, "img_size": 15}, 3e-3, 60),
    "kernel_capsnet": ({**CAPSNET, "inducing": 16}, 3e-3, 100),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_learns_32_images_by_heart(name: str) -> None:
    settings, rate, steps = NETWORKS[name]
    model = cc.create_model(name, **settings)
    images = torch.rand(32, model.in_chans, *model.img_size)
    labels = torch.arange(32) % model.num_classes
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for step in range(steps):
        optimizer.zero_grad()
        loss, _ = model.training_loss(Lesson(images, labels, images, step, train_images=32))
        loss.mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = model(images).argmax(1) == labels
    assert right.all(), f"{int(right.sum())} of 32 right"
