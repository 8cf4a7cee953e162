import pytest

from clustercaps.bench.cases import Case
from clustercaps.bench.work import gflop, vote_bytes, vote_macs

M1 = Case("m1", in_chans=1, size=32, batch=64)
# By hand, for one image. Layer 1: 1024 positions x 9 taps of 1 colour x 4 clusters x 5 votes x 4
# channels x 6 dims. Layers 2 to 5: 54 taps for each of 480 votes, on 256, 256, 64 and 64 positions.
FIRST = 1024 * 9 * 480
LATER = [positions * 54 * 480 for positions in (256, 256, 64, 64)]


def test_macs_of_m1_by_hand() -> None:
    assert vote_macs(M1) == [64 * macs for macs in (FIRST, *LATER)]
    assert (FIRST, sum(LATER)) == (4_423_680, 16_588_800)


def test_training_step_counts_recomputation_and_no_gradient_of_images() -> None:
    assert gflop(M1, "training step", recomputes=True) == pytest.approx(10.19215872)
    stored = 2 * 64 * (2 * FIRST + 3 * sum(LATER)) / 1e9
    assert gflop(M1, "training step", recomputes=False) == pytest.approx(stored)


def test_inference_counts_the_convolution_once() -> None:
    once = 2 * (FIRST + sum(LATER)) / 1e9
    assert gflop(M1, "forward", recomputes=True) == pytest.approx(64 * once)
    assert gflop(M1, "one image", recomputes=True) == pytest.approx(once)


def test_layers_add_up_to_the_network() -> None:
    whole = gflop(M1, "training step", recomputes=True)
    layers = [Case("m1", 1, 32, 64, layer=number) for number in range(1, 6)]
    assert sum(gflop(case, "training step", True) for case in layers) == pytest.approx(whole)


def test_votes_of_m4_are_as_large_as_the_design_says() -> None:
    assert vote_bytes(Case("m4", 3, 32, 64))[0] == 805_306_368
