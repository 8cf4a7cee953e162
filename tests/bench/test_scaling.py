import pytest

from clustercaps.bench.cases import Case
from clustercaps.bench.fits import exponent, straight_line
from clustercaps.bench.measure import Timing
from clustercaps.bench.scaling import AXES, csv_rows, points, rows


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_exponent_of_a_power_law(power: float) -> None:
    sizes = [2, 3, 8, 100]
    assert exponent(sizes, [0.07 * size**power for size in sizes]) == pytest.approx(power)


def test_exponent_of_noisy_times() -> None:
    sizes = [16, 32, 64, 128, 256]
    noise = [1.05, 0.96, 1.02, 0.97, 1.01]
    times = [size * off for size, off in zip(sizes, noise, strict=True)]
    assert exponent(sizes, times) == pytest.approx(1, abs=0.03)


def test_straight_line_with_fixed_costs() -> None:
    sizes = [2, 4, 8, 16]
    assert straight_line(sizes, [24.0 + 9 * size for size in sizes]) == pytest.approx((24, 9, 1))
    assert straight_line(sizes, [float(size**2) for size in sizes])[2] < 0.98


def test_images_are_fitted_by_area() -> None:
    timings = {
        (axis.name, value): Timing(1e-3 * value, 0.0, 3) for axis in AXES for value in axis.values
    }
    found = {axis.name: exponent(*points(axis, timings)) for axis in AXES}
    assert found["image area"] == pytest.approx(0.5)
    assert found["votes K"] == pytest.approx(1)
    assert [row[0] for row in rows(AXES, timings)] == [axis.name for axis in AXES]
    base = Case("m1", 1, 32, 64)
    cases = {(axis.name, v): axis.case(base, v) for axis in AXES for v in axis.values}
    written = csv_rows(AXES, cases, timings, "cpu")
    # votes, dim, channels, in_chans, side, batch: one of them grows, the others are M1's.
    assert written[0][2:9] == ["votes K", 2, 6, 4, 1, 32, 64]
    assert written[-1][2:10] == ["batch", 5, 6, 4, 1, 32, 128, 128]
