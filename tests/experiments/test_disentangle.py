"""Whether properties of drawings are what their names say, and effects those of the capsules."""

import pytest
import torch

from clustercaps.experiments.harness.capsule_directions import (
    best_axis_share,
    by_class,
    deviations,
    explained,
    halves,
    intended_share,
    orthonormal,
    own_capsules,
    property_directions,
)
from clustercaps.experiments.harness.digit_properties import (
    PROPERTIES,
    concentration,
    effects,
    measure_properties,
)
from clustercaps.experiments.harness.disentangling import strips
from clustercaps.experiments.harness.measured_cells import View
from clustercaps.models import create_model


def bar(width: int, height: int, lean: float = 0.0) -> torch.Tensor:
    """An upright bar, or one whose rows shift to the right towards its top."""
    image = torch.zeros(1, 1, 32, 32)
    top = 16 - height // 2
    for row in range(top, top + height):
        left = 16 - width // 2 + round(lean * (16 - row))
        image[0, 0, row, left : left + width] = 1.0
    return image


def properties(image: torch.Tensor) -> dict[str, float]:
    return dict(zip(PROPERTIES, measure_properties(image)[0].tolist(), strict=True))


def test_a_bar_has_its_sides_area_and_thickness() -> None:
    found = properties(bar(4, 24))
    assert found["area"] == pytest.approx(96)
    assert found["slant"] == pytest.approx(0, abs=1e-6)
    assert found["width"] == pytest.approx(4, rel=0.05)
    assert found["height"] == pytest.approx(24, rel=0.01)
    # Twice the area over the outline, 2 (4 + 24).
    assert found["thickness"] == pytest.approx(2 * 96 / 56, rel=0.03)


@pytest.mark.parametrize("lean", [-0.5, 0.5])
def test_a_lean_is_slant_and_leaves_the_other_properties(lean: float) -> None:
    upright, leaning = properties(bar(4, 24)), properties(bar(4, 24, lean))
    assert leaning["slant"] == pytest.approx(lean, rel=0.02)
    assert leaning["width"] == pytest.approx(upright["width"], rel=0.1)
    for name in ("height", "area"):
        assert leaning[name] == pytest.approx(upright[name])


def test_place_and_shade_of_the_background_do_not_break_anything() -> None:
    moved = bar(4, 20).roll((3, -5), (2, 3))
    torch.testing.assert_close(measure_properties(moved), measure_properties(bar(4, 20)))
    assert measure_properties(torch.zeros(1, 1, 32, 32)).isfinite().all()


def test_concentration_is_one_for_one_property_and_a_fifth_for_all() -> None:
    effect = torch.tensor([[0.0, -3.0, 0, 0, 0], [1, -1, 1, -1, 1], [0, 0, 0, 0, 0]])
    torch.testing.assert_close(concentration(effect), torch.tensor([1.0, 0.2, 0.0]))


def test_effects_find_the_dimension_that_makes_bars_taller() -> None:
    def draw(capsules: torch.Tensor) -> torch.Tensor:
        return torch.cat([bar(4, 16 + 2 * round(float(capsule[1]))) for capsule in capsules])

    found = effects(draw, torch.zeros(2, 3), 2 * torch.eye(3), torch.ones(5, dtype=torch.float64))
    assert found.shape == (2, 3, 5)
    assert not found[:, (0, 2)].any()
    assert found[0, 1, PROPERTIES.index("height")] == pytest.approx(8, rel=0.01)
    assert found[0, 1, PROPERTIES.index("area")] == pytest.approx(32)


def test_opposite_effects_on_images_of_a_class_cancel() -> None:
    effect = torch.tensor([1.0, -1.0, 2.0]).view(3, 1, 1).expand(3, 2, 5)
    found = by_class(effect, torch.tensor([4, 4, 7]))
    torch.testing.assert_close(found, torch.tensor([0.0, 2.0]).view(2, 1, 1).expand(2, 2, 5))


def test_deviations_and_halves_are_of_each_class() -> None:
    labels = torch.tensor([0, 1, 0, 1, 1, 1])
    capsules = torch.tensor([[0.0], [5], [2], [5], [5], [5]])
    torch.testing.assert_close(deviations(capsules, labels)[:, 0], 2**0.5 * (labels == 0).float())
    assert halves(labels).tolist() == [True, True, False, False, True, False]


def test_fitted_directions_change_one_property_where_dimensions_mix_them() -> None:
    torch.manual_seed(0)
    mixing = torch.linalg.qr(torch.randn(1, 8, 8).double()).Q[:, :, :5]
    fitted = property_directions(mixing)
    assert intended_share(fitted @ mixing) == pytest.approx(1)
    # The columns of the mixing matrix are orthonormal, so a rotation separates the properties too.
    torch.testing.assert_close(orthonormal(fitted), fitted)
    assert best_axis_share(mixing, mixing) < 0.8
    skewed = mixing * torch.tensor([1, 1, 1, 1, 1.0]) + mixing[:, :, :1]
    assert intended_share(property_directions(skewed) @ skewed) == pytest.approx(1)
    assert intended_share(orthonormal(property_directions(skewed)) @ skewed) < 0.9


def test_explained_is_one_for_linear_properties_and_none_for_noise() -> None:
    torch.manual_seed(0)
    capsules, labels = torch.randn(400, 4), torch.arange(400) % 2
    properties = torch.randn(400, 5)
    properties[:, :2] = capsules @ torch.randn(4, 2) + 3 * labels[:, None]
    found = explained(capsules, properties.double(), labels, halves(labels))
    assert found[:2].min() > 0.99
    assert found[2:].max() < 0.1


@pytest.mark.parametrize("model", ["class_capsules", "ar_capsnet"])
@torch.no_grad()
def test_the_middle_of_a_strip_is_what_the_network_draws(model: str) -> None:
    network = create_model(model, dim=3).eval()
    images, labels = torch.rand(2, 1, 28, 28), torch.tensor([3, 8])
    capsules, draw = own_capsules(View(network, images, images, labels))
    wanted = network.reconstruct(network.forward_features(images), labels)
    torch.testing.assert_close(draw(labels)(capsules), wanted)
    drawn = strips(draw(labels[:1]), capsules[0], 0.25 * torch.eye(3))
    assert drawn.shape == (3, 11, 28, 28)
    for strip in drawn:
        torch.testing.assert_close(strip[5], wanted[0, 0])
        assert not torch.allclose(strip[0], strip[10])
