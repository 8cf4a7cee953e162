import itertools

import pytest
import torch

from clustercaps.losses import spread_loss, spread_margin


def test_by_hand() -> None:
    activations = torch.tensor([[0.9, 0.5, 0.2], [0.5, 0.9, 0.2]])
    labels = torch.tensor([0, 1])
    assert spread_loss(activations, labels, 0.2).tolist() == [0.0, 0.0]
    # (0.9 - 0.4)^2 + (0.9 - 0.7)^2
    assert spread_loss(activations, labels, 0.9).tolist() == pytest.approx([0.29, 0.29])
    # The wrong class leads: (0.2 + 0.4)^2 + (0.2 - 0.3)^2 cut at 0
    assert spread_loss(activations, labels.flip(0), 0.2).tolist() == pytest.approx([0.36, 0.36])


def test_the_authors_schedule() -> None:
    margins = [spread_margin(step) for step in (0, 100_000, 200_000, 400_000, 2_000_000)]
    assert margins == pytest.approx([0.2142, 0.2942, 0.595, 0.9758, 0.98996], abs=5e-5)
    assert spread_margin(400, pace=50.0) == spread_margin(400_000)
    assert all(a < b for a, b in itertools.pairwise(margins))


def test_one_class_costs_nothing() -> None:
    assert spread_loss(torch.rand(2, 1), torch.zeros(2).long(), 0.9).tolist() == [0.0, 0.0]
    assert spread_loss(torch.rand(0, 3), torch.zeros(0).long(), 0.9).shape == (0,)


def test_gradcheck() -> None:
    activations = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 3, 1])
    assert torch.autograd.gradcheck(lambda a: spread_loss(a, labels, 0.9), activations)
