"""Properties of the splits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clustercaps.data import Images, load, validation_split, viewpoint_split

counts = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@settings(deadline=None, max_examples=50)
@given(counts, st.floats(0.05, 0.95), st.integers(0, 2**31))
def test_disjoint_exhaustive_and_balanced(counts, fraction, seed):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    train, validation = validation_split(labels, fraction, seed)
    assert sorted([*train.tolist(), *validation.tolist()]) == list(range(len(labels)))
    for label, count in enumerate(counts):
        assert int((labels[validation] == label).sum()) == round(fraction * count)
    assert train.tolist() == sorted(train.tolist())


def test_the_seed_decides_and_nothing_else():
    labels = torch.arange(1000) % 10
    _, first = validation_split(labels, seed=3)
    torch.rand(5)
    _, again = validation_split(labels, seed=3)
    _, other = validation_split(labels, seed=4)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(first) == 200


def test_held_out_images_are_not_the_first_ones():
    images = load("fashion-mnist-mini")
    _, validation = validation_split(images.labels)
    assert len(validation) == 2000
    assert images.labels[validation].bincount().tolist() == [200] * 10
    # The mean of 2,000 of the numbers 0..9,999 lies within 300 of the middle.
    assert abs(float(validation.double().mean()) - 5000) < 300


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 20.0])
def test_impossible_fractions(fraction):
    with pytest.raises(ValueError, match="between 0 and 1"):
        validation_split(torch.zeros(5, dtype=torch.int64), fraction)


def viewpoints() -> Images:
    """One image for each of the 9 elevations and 18 azimuths."""
    elevation = torch.arange(9).repeat_interleave(18)
    azimuth = (torch.arange(18) * 2).repeat(9)
    pixels = torch.zeros(162, 2, 4, 4, dtype=torch.uint8)
    meta = {"elevation": elevation, "azimuth": azimuth, "name": "smallnorb"}
    return Images(pixels, torch.zeros(162, dtype=torch.int64), meta)


def test_familiar_azimuths_are_300_to_40_degrees():
    images = viewpoints()
    familiar, novel = viewpoint_split(images, "azimuth")
    degrees = images.meta["azimuth"] * 10
    assert set(degrees[familiar].tolist()) == {300, 320, 340, 0, 20, 40}
    assert set(degrees[novel].tolist()) == set(range(60, 281, 20))
    # One third to train on, as the paper says.
    assert int(familiar.sum()) * 3 == len(images)
    assert torch.equal(familiar, ~novel)


def test_familiar_elevations_are_the_three_smallest():
    images = viewpoints()
    familiar, novel = viewpoint_split(images, "elevation")
    assert set(images.subset(familiar).meta["elevation"].tolist()) == {0, 1, 2}
    assert set(images.subset(novel).meta["elevation"].tolist()) == {3, 4, 5, 6, 7, 8}


def test_viewpoints_need_smallnorb():
    with pytest.raises(ValueError, match="fashion-mnist-mini has no azimuth"):
        viewpoint_split(load("fashion-mnist-mini", "test"))
    with pytest.raises(ValueError, match="'azimuth' or 'elevation', got 'roll'"):
        viewpoint_split(viewpoints(), "roll")
