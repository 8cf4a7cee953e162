import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import clustercaps as cc
from clustercaps.bench.cases import Case
from clustercaps.bench.peak_memory import can_measure, peak_extra_mb
from clustercaps.models.memory import StorageCount


@pytest.mark.skipif(not can_measure(), reason="the system does not tell peak memory")
@pytest.mark.parametrize(
    ("name", "in_chans", "batch"),
    [
        *(("m1", 1, 64), ("m1", 1, 8), ("capsnet_svhn", 3, 64)),
        # Large weights in a convolution, in groups, and in a decoder.
        *(("capsnet", 1, 8), ("ar_capsnet", 1, 8), ("efficient_capsnet", 1, 8)),
    ],
)
def test_estimate_is_within_a_fifth_of_what_a_step_takes(
    name: str, in_chans: int, batch: int
) -> None:
    case = Case(name, in_chans, 32, batch)
    estimate = cc.memory_estimate(case.network(), batch=batch) / 1e6
    measured = peak_extra_mb(case, "auto", threads=torch.get_num_threads())
    assert estimate == pytest.approx(measured, rel=0.2)


@pytest.mark.slow
@pytest.mark.skipif(not can_measure(), reason="the system does not tell peak memory")
@pytest.mark.parametrize(
    ("name", "size", "fraction"),
    [("em_small", 32, 0.4), ("inverted_attention", 20, 0.5)],
)
def test_checkpoint_reduces_the_measured_peak(name: str, size: int, fraction: float) -> None:
    peaks = []
    for checkpoint in (False, True):
        case = Case(name, 1, size, 8, changes=(("checkpoint", checkpoint),))
        peaks.append(peak_extra_mb(case, "auto", threads=torch.get_num_threads()))
        estimate = cc.memory_estimate(case.network(), batch=8) / 1e6
        # Libraries take some megabytes of their own, which shows in a peak of 20.
        assert estimate == pytest.approx(peaks[-1], rel=0.2, abs=10), checkpoint
    assert peaks[1] < fraction * peaks[0]


@pytest.mark.skipif(not can_measure(), reason="the system does not tell peak memory")
def test_heinsens_votes_are_never_in_memory() -> None:
    case = Case("heinsen_smallnorb", 2, 64, 4)
    capsules = case.network().capsules.routing
    votes = 4 * capsules.children_count * capsules.parents_count * capsules.dim * 4 / 1e6
    measured = peak_extra_mb(case, "auto", threads=torch.get_num_threads())
    assert cc.memory_estimate(case.network(), batch=4) / 1e6 == pytest.approx(measured, rel=0.2)
    # Convolutions included.
    assert measured < 2 * votes


def test_estimate_by_hand() -> None:
    model = cc.create_model("affine_cnn", img_size=8)
    small, large = (cc.memory_estimate(model, batch=b, training=False) for b in (10, 20))
    # At the second convolution: its input of 96 maps of 8x8, which the rectifier made, its output
    # at half the side, and the library's copies of the larger one and of the weights.
    maps, halved, weights = 96 * 64 * 4, 96 * 16 * 4, 96 * 96 * 3 * 3 * 4
    assert small == 10 * (2 * maps + halved) + weights
    assert large == 20 * (2 * maps + halved) + weights


def test_sums_of_gradients_need_no_third_tensor() -> None:
    with FakeTensorMode(), StorageCount([]) as count:
        first, second = torch.empty(1000), torch.empty(1000)
        count.backward = True
        total = first + second
        del first
        # What is kept of it counts from the next operator on.
        kept = second * 2
    assert count.peak == 3 * 4000
    assert total.shape == kept.shape


def test_estimate_changes_nothing_and_needs_no_data() -> None:
    model = cc.create_model("capsnet_svhn")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    # Hundreds of megabytes, none of which are allocated.
    assert cc.memory_estimate(model, batch=512) > 2e8
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    with pytest.raises(ValueError, match="batch must be an integer of at least 1"):
        cc.memory_estimate(model, batch=0)
