import pytest
import torch

import clustercaps as cc
from clustercaps.bench.spread import COLUMNS, gain, measure, quantiles


def test_eps_matters_for_two_votes_and_not_for_many() -> None:
    changes = {}
    for votes in (2, 8):
        torch.manual_seed(0)
        net = cc.create_model("m1", in_chans=1, img_size=8, votes=votes)
        rows = measure("m1", net, torch.rand(4, 1, 8, 8, dtype=torch.float64))
        assert [row[1] for row in rows] == [1, 2, 3, 4, 5, "logits"]
        changes[votes] = rows[-1][COLUMNS.index("relative_change")]
    assert 0 < changes[8] < 1e-3 < changes[2]


def test_gain_by_hand() -> None:
    # Two clusters of two votes for one parent: centroids 1 and 4, spreads 1 and 2.
    votes = torch.tensor([[[0.0, 2.0], [2.0, 6.0]]], dtype=torch.float64).unsqueeze(3)
    parent = (1 / 1 * 1 + 1 / 2 * 4) / (1 / 1 + 1 / 2)
    assert gain(votes, 0.0) == pytest.approx(max(parent - 1, (4 - parent) * 2 / 4))


def test_quantiles() -> None:
    assert quantiles(torch.arange(101.0).flip(0), (0.0, 0.01, 0.5)) == [0, 1, 50]
