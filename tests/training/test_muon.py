"""The optimiser of the recipe `strong`."""

import math

import pytest
import torch
from torch import nn

from clustercaps.training.muon import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(4, 120, 54), (1, 9, 30), (3, 1, 7), (2, 5, 1)])
def test_singular_values_come_near_one(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrices))
    # The coefficients trade exactness for speed: 0.7 to 1.2 is where they settle.
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_matrices_are_orthogonalised_one_by_one() -> None:
    matrices = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(1))
    alone = torch.cat([orthogonalise(m.unsqueeze(0)) for m in matrices])
    torch.testing.assert_close(orthogonalise(matrices), alone)
    assert orthogonalise(torch.zeros(2, 3, 4)).abs().max() == 0


def test_the_groups_of_a_convolution_do_not_meet() -> None:
    # Scaling one group's gradient by a thousand leaves every step as long as it was.
    torch.manual_seed(0)
    steps = []
    for scale in (1.0, 1000.0):
        layer = nn.Conv2d(4, 8, 3, groups=2, bias=False)
        with torch.no_grad():
            layer.weight.zero_()
        optimizer = Muon(layer, lr=0.1, momentum=0.0, nesterov=False)
        gradient = torch.randn(8, 2, 3, 3, generator=torch.Generator().manual_seed(2))
        gradient[:4] *= scale
        layer.weight.grad = gradient
        optimizer.step()
        steps.append(layer.weight.detach().clone())
    torch.testing.assert_close(steps[0], steps[1], rtol=1e-3, atol=1e-5)


def test_what_is_no_convolution_takes_the_steps_of_adamw() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7))
    twin = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7))
    twin.load_state_dict(model.state_dict())
    ours = Muon(model, lr=0.02, adamw_lr=3e-3, weight_decay=0.1)
    theirs = torch.optim.AdamW(twin.parameters(), 3e-3, betas=(0.9, 0.99), weight_decay=0.1)
    for step in range(5):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
        for network, optimizer in ((model, ours), (twin, theirs)):
            optimizer.zero_grad()
            network(x).square().sum().backward()
            optimizer.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_length_of_a_step() -> None:
    layer = nn.Conv2d(2, 32, 1, bias=False)
    with torch.no_grad():
        layer.weight.zero_()
    layer.weight.grad = torch.randn(32, 2, 1, 1, generator=torch.Generator().manual_seed(3))
    Muon(layer, lr=0.5).step()
    values = torch.linalg.svdvals(layer.weight.detach().flatten(1))
    assert values.tolist() == pytest.approx([0.5 * math.sqrt(32 / 2)] * 2, rel=0.35)
