"""Every capsule system can learn 32 images by heart, shrunken to a few seconds on one core."""

import pytest
import torch

import clustercaps as cc
from clustercaps.models import Lesson

MATRIX = {"num_classes": 5, "in_chans": 1, "img_size": 17, "width": 16}

# Name: settings, learning rate, steps.
SYSTEMS = {
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
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_learns_32_images_by_heart(name: str) -> None:
    settings, rate, steps = SYSTEMS[name]
    model = cc.create_model(name, **settings)
    images = torch.rand(32, model.in_chans, *model.img_size)
    labels = torch.arange(32) % model.num_classes
    # Prepared images have mean 0 and deviation 1.
    prepared = (images - images.mean()) / images.std()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for step in range(steps):
        optimizer.zero_grad()
        loss, _ = model.training_loss(Lesson(prepared, labels, images, step, len(images)))
        loss.mean().backward()
        optimizer.step()
    with torch.no_grad():
        # So few steps leave running statistics behind the weights.
        for _ in range(60 if any("running" in key for key in model.state_dict()) else 0):
            model(prepared)
        assert (model.eval()(prepared).argmax(1) == labels).all()
