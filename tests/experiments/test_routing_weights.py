"""Whether the test of data-dependent routing tells dependent from independent weights."""

import torch

import clustercaps as cc
from clustercaps.experiments.harness.measured_cells import View
from clustercaps.experiments.routing_weights import BATCH, bars, last_weights, variance_ratios

LABELS = torch.arange(300) % 3


def weights(shift: float) -> torch.Tensor:
    """Weights of two vote clusters for one capsule of two dimensions; only the first shifts."""
    chance = torch.Generator().manual_seed(0)
    first = 0.5 + 0.01 * torch.randn(300, 1, 2, generator=chance, dtype=torch.float64)
    first[:, :, 0] += shift * LABELS.double()[:, None]
    return torch.stack([first, 1 - first], 1)


def test_ratio_is_that_of_the_analysis_of_variance() -> None:
    # Class means 0, s and 2 s have the variance 2/3 s^2.
    ratio = variance_ratios(weights(0.05), LABELS)[0]
    torch.testing.assert_close(float(ratio[0]), 2 / 3 * 0.05**2 / 0.01**2, rtol=0.2, atol=0.0)
    # Without a class, k - 1 over n - k is expected.
    assert ratio[1] < 5 * 2 / 297


def test_shuffled_labels_explain_nothing() -> None:
    shuffled = LABELS[torch.randperm(300, generator=torch.Generator().manual_seed(1))]
    assert variance_ratios(weights(0.05), shuffled).max() < 0.1


def test_constant_weights_never_pass() -> None:
    constant = torch.full((300, 4, 10, 8), 0.25, dtype=torch.float64)
    assert not variance_ratios(constant, LABELS).any()


def test_bars_take_the_last_dimension_of_a_small_network() -> None:
    plotted = bars(weights(0.05), LABELS, (2, 1))
    assert (plotted["channel"], plotted["dim"]) == (1, 1)
    means = torch.tensor(plotted["mean"])
    torch.testing.assert_close(means.sum(1), torch.ones(3), rtol=0.0, atol=1e-4)
    torch.testing.assert_close(means[:, 0], torch.tensor([0.5, 0.55, 0.6]), rtol=0.0, atol=0.01)


@torch.no_grad()
def test_weights_are_those_of_a_trace_of_all_layers() -> None:
    model = cc.models.ClassCapsuleNet(dim=3, votes=3).eval()
    # More than one batch, and the last one is smaller.
    images = torch.rand(BATCH + 3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    view = View(model, images, images, torch.zeros(len(images), dtype=torch.long))
    _, traces = model.forward_features(images, trace=True)
    expected = traces[-1].weights.flatten(3).double()
    # The other layers are fused in one case only, and few close votes enlarge rounding errors.
    torch.testing.assert_close(last_weights(view), expected, rtol=0.0, atol=1e-3)
    assert expected.std(0).min() > 0.01
