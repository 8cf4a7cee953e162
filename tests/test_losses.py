"""Losses against numbers computed by hand."""

import math

import pytest
import torch
from torch import Tensor

from clustercaps.losses import (
    centripetal,
    centripetal_loss,
    gaussian_kl,
    margin_loss,
    mask_capsules,
    negative_elbo,
    reconstruction_loss,
)


def exact(*rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


FIRST = torch.tensor([0])


def test_margin_loss() -> None:
    # (0.9 - 0.6)^2 + 0.5 (0.3 - 0.1)^2 + 0.
    assert margin_loss(exact([0.6, 0.3, 0.05]), FIRST).tolist() == pytest.approx([0.11])
    # Every margin kept, then every one missed: 0.9^2 + 2 * 0.5 * 0.9^2.
    both = margin_loss(exact([0.95, 0.1, 0.0], [0.0, 1.0, 1.0]), torch.tensor([0, 0]))
    assert both.tolist() == pytest.approx([0.0, 1.62])
    other = margin_loss(exact([0.5, 0.4]), FIRST, upper=0.8, lower=0.2, absent_weight=0.25)
    assert other.tolist() == pytest.approx([0.1])


def test_margin_loss_in_the_authors_reduction() -> None:
    # Half of the mean over three classes: 0.11 / 6.
    ours = margin_loss(exact([0.6, 0.3, 0.05]), FIRST)
    assert (0.5 * ours / 3).tolist() == pytest.approx([0.018333], abs=1e-6)


def test_softmaxed_lengths_cannot_reach_the_margin() -> None:
    """A port that takes the softmax of the lengths first keeps paying: e / (e + 9) is 0.23."""
    perfect = torch.nn.functional.one_hot(FIRST, 10).double()
    assert margin_loss(perfect, FIRST).item() == 0
    assert margin_loss(perfect.softmax(1), FIRST).item() > 0.4


def test_reconstruction_loss_is_a_sum_over_pixels() -> None:
    drawn, pixels = torch.full((2, 1, 2, 3), 0.5), torch.zeros(2, 1, 2, 3)
    assert reconstruction_loss(drawn, pixels).tolist() == [1.5, 1.5]
    # 0.0005 times the sum is 0.392 times the mean for 28x28 grey pixels.
    drawn, pixels = torch.rand(1, 1, 28, 28).double(), torch.rand(1, 1, 28, 28).double()
    by_mean = 0.392 * (drawn - pixels).square().mean()
    torch.testing.assert_close(0.0005 * reconstruction_loss(drawn, pixels)[0], by_mean)


def test_mask_capsules_keeps_one_class() -> None:
    capsules = torch.arange(12.0).view(2, 3, 2)
    masked = mask_capsules(capsules, torch.tensor([2, 0]))
    assert masked.tolist() == [[0, 0, 0, 0, 4, 5], [6, 7, 0, 0, 0, 0]]


def test_price_of_a_distance() -> None:
    prices = centripetal(exact(0.05, 0.1, 0.2, 0.25, 0.55), 0.1)
    assert prices.tolist() == pytest.approx([0, 0, 0.02, 0.04, 0.25])


def test_price_is_continuous_and_rises() -> None:
    for number in range(1, 9):
        edge = 0.1 + 0.1 * number
        below, above = centripetal(exact(edge - 1e-9, edge + 1e-9), 0.1).tolist()
        assert above - below == pytest.approx(0, abs=1e-8)
    assert (centripetal(torch.linspace(0, 2, 300).double(), 0.1).diff() >= 0).all()


def test_slope_grows_by_steps() -> None:
    distances = exact(0.05, 0.15, 0.25, 0.45).requires_grad_()
    centripetal(distances, 0.1).sum().backward()
    assert distances.grad.tolist() == pytest.approx([0, 0.2, 0.4, 0.8])


def test_centripetal_loss() -> None:
    # Hit 0.04, miss 0.5 * 0.06, and a third capsule that is far enough.
    assert centripetal_loss(exact([0.25, 0.7, 1.0]), FIRST, 16).tolist() == pytest.approx([0.07])
    # A wrong capsule in the very centre pays 0.5 * 0.9.
    assert centripetal_loss(exact([0.05, 0.0]), FIRST, 16).tolist() == pytest.approx([0.45])


def test_the_nearest_wrong_capsule_is_a_ghost() -> None:
    distances = exact([0.25, 0.7, 0.8])
    # Without the ghost, 0.7 pays 0.03 and 0.8 pays 0.5 * 0.02.
    assert centripetal_loss(distances, FIRST, 16).tolist() == pytest.approx([0.08])
    assert centripetal_loss(distances, FIRST, 16, ghosts=True).tolist() == pytest.approx([0.05])
    alone = centripetal_loss(exact([0.25]), FIRST, 16, ghosts=True)
    assert alone.tolist() == pytest.approx([0.04])


def test_divergence_of_the_prior_from_itself_is_zero() -> None:
    eye = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    assert gaussian_kl(torch.zeros(2, 3).double(), eye).tolist() == [0, 0]


def test_divergence_by_hand() -> None:
    # One number: (s^2 + m^2 - 1) / 2 - log s.
    expected = (0.25 + 4 - 1) / 2 - math.log(0.5)
    assert gaussian_kl(exact(2.0), exact([0.5])).item() == pytest.approx(expected)


def test_divergence_is_that_of_torch() -> None:
    mean, factor = torch.randn(4).double(), torch.randn(4, 4).double().tril()
    factor.diagonal().exp_()
    ours = torch.distributions.MultivariateNormal(mean, scale_tril=factor)
    prior = torch.distributions.MultivariateNormal(torch.zeros(4).double(), torch.eye(4).double())
    expected = torch.distributions.kl_divergence(ours, prior)
    torch.testing.assert_close(gaussian_kl(mean, factor), expected)


def test_every_image_pays_its_part_of_the_divergence() -> None:
    loss = negative_elbo(exact(-0.5, -2.0), torch.tensor(3.0).double(), train_images=6)
    assert loss.tolist() == [1.0, 2.5]


def test_gradcheck() -> None:
    values = (torch.rand(2, 3).double() + 0.013).requires_grad_()
    labels = torch.tensor([0, 2])
    assert torch.autograd.gradcheck(lambda v: margin_loss(v, labels), values)
    assert torch.autograd.gradcheck(lambda v: centripetal_loss(v, labels, 9), values)
    assert torch.autograd.gradcheck(lambda v: centripetal_loss(v, labels, 9, ghosts=True), values)
    pixels = torch.rand(2, 3).double()
    assert torch.autograd.gradcheck(lambda v: reconstruction_loss(v, pixels), values)
    assert torch.autograd.gradcheck(lambda v: negative_elbo(v[:, 0], v.sum(), 5), values)
    capsules = torch.randn(2, 3, 2).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: mask_capsules(v, labels), capsules)
    factor = (torch.randn(2, 3, 3).double().tril() / 4 + torch.eye(3)).requires_grad_()
    assert torch.autograd.gradcheck(gaussian_kl, (values, factor))
