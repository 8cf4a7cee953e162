import pytest
import torch

import clustercaps as cc
from clustercaps.losses import centripetal_loss
from clustercaps.models import TrainingBatch
from clustercaps.models.registry import count_parameters

TINY = {"width": 6, "dim": 4, "num_classes": 3, "img_size": 19}


def test_parameter_counts() -> None:
    assert count_parameters("hitnet") == 8_216_048
    assert count_parameters("hitnet", in_chans=3, img_size=32) == 11_749_600


def test_capsules_in_the_cube_and_the_nearest_wins() -> None:
    model = cc.create_model("hitnet", **TINY).eval()
    capsules = model.forward_features(torch.rand(5, 1, 19, 19))
    assert capsules.shape == (5, 3, 4)
    assert capsules.min() > 0
    assert capsules.max() < 1
    distances = (capsules - 0.5).norm(dim=2)
    scores = model.forward_head(capsules)
    torch.testing.assert_close(scores, -distances, rtol=1e-3, atol=1e-4)
    assert scores.argmax(1).equal(distances.argmin(1))
    assert distances.max() <= 1
    # The decoder reads the nearest capsule, not the farthest.
    torch.testing.assert_close(
        model.reconstruct(capsules), model.reconstruct(capsules, distances.argmin(1))
    )


def test_a_capsule_in_the_very_centre_has_a_gradient() -> None:
    model = cc.create_model("hitnet", **TINY)
    capsules = torch.full((2, 3, 4), 0.5, requires_grad=True)
    model.forward_head(capsules).sum().backward()
    assert capsules.grad.isfinite().all()


@pytest.mark.parametrize("ghosts", [False, True])
def test_the_loss_is_centripetal_and_squared_error(ghosts: bool) -> None:
    model = cc.create_model("hitnet", **TINY, ghosts=ghosts)
    images, labels = torch.rand(4, 1, 19, 19), torch.tensor([0, 2, 1, 1])
    loss, scores = model.training_loss(TrainingBatch(images, labels, images))
    drawn = model.reconstruct(model.forward_features(images), labels)
    expected = centripetal_loss(-scores, labels, 4, ghosts=ghosts)
    expected = expected + 0.0005 * (drawn - images).square().sum((1, 2, 3))
    torch.testing.assert_close(loss, expected)


def test_prototypes_are_drawn_from_the_centre() -> None:
    model = cc.create_model("hitnet", **TINY).eval()
    prototypes = model.prototypes()
    assert prototypes.shape == (3, 1, 19, 19)
    flat = torch.zeros(1, 12)
    flat[:, 4:8] = 0.5
    torch.testing.assert_close(prototypes[1:2], model.decoder(flat))


def test_small_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"too small for a 9x9 convolution \(second convolution\)"):
        cc.create_model("hitnet", img_size=16)
