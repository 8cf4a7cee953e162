"""Networks of other papers, shrunken, learn 32 images by heart with the loss of their paper."""

import pytest
import torch

import clustercaps as cc
from clustercaps.models import Lesson

AR = {"width": 8, "types": 4, "primary_dim": 8, "dim": 8, "img_size": 12, "dropout": 0.0}
# Settings that make a network small, learning rate of Adam, steps.
NETWORKS = {
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


@pytest.mark.parametrize("name", NETWORKS)
def test_32_images_by_heart(name: str) -> None:
    settings, rate, steps = NETWORKS[name]
    model = cc.create_model(name, num_classes=10, **settings)
    images = torch.rand(32, model.in_chans, *model.img_size)
    labels = torch.arange(32) % 10
    for module in model.modules():
        # Few steps: running statistics must not lag behind.
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.2
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for step in range(steps):
        optimizer.zero_grad()
        loss, _ = model.training_loss(Lesson(images, labels, images, step, 32))
        loss.mean().backward()
        optimizer.step()
    with torch.no_grad():
        assert model.eval()(images).argmax(1).equal(labels)
