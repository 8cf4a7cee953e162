"""Whether channels and images are transformed alike, and decoded as the networks decode."""

import pytest
import torch

from clustercaps.experiments.affine import STRIDE, averages, draw, read_maps
from clustercaps.experiments.harness.pictures import mosaic, pack, unpack
from clustercaps.experiments.harness.transformations import names, transform
from clustercaps.models import create_model

IMAGE = torch.zeros(1, 1, 8, 8)
IMAGE[0, 0, 1, 2] = 1.0


def place(image: torch.Tensor) -> list[list[int]]:
    return (image[0, 0] > 0.5).nonzero().tolist()


@pytest.mark.parametrize(
    ("name", "row", "column"),
    [
        *(("R-0", 1, 2), ("R-90", 5, 1), ("R-180", 6, 5), ("R-270", 2, 6)),
        *(("H-flip", 1, 5), ("V-flip", 6, 2), ("Shift-1", 2, 3), ("Shift-4", 5, 6)),
    ],
)
def test_a_pixel_goes_where_it_should(name: str, row: int, column: int) -> None:
    assert place(transform(IMAGE, name)) == [[row, column]]


def test_turns_and_scales_keep_the_centre() -> None:
    square = torch.zeros(1, 1, 32, 32)
    square[0, 0, 8:24, 8:24] = 1.0
    for name in names():
        if not name.startswith("Shift"):
            assert transform(square, name)[0, 0, 16, 16] == pytest.approx(1.0)
    assert transform(square, "Scale-1.5").sum() == pytest.approx(24 * 24, rel=0.02)
    assert transform(square, "Scale-0.5").sum() == pytest.approx(8 * 8)


def test_a_shift_of_channels_is_twice_that_in_the_image() -> None:
    small = torch.zeros(1, 1, 8, 8)
    small[0, 0, 2, 3] = 1.0
    large = small.repeat_interleave(2, -1).repeat_interleave(2, -2)
    moved = transform(small, "Shift-2").repeat_interleave(2, -1).repeat_interleave(2, -2)
    torch.testing.assert_close(moved, transform(large, "Shift-2", STRIDE))
    assert not torch.allclose(moved, transform(large, "Shift-2"))


@pytest.mark.parametrize(
    ("model", "settings"),
    [("affine_capsules", {}), ("affine_cnn", {}), ("capsnet", {"width": 8, "types": 2})],
)
@torch.no_grad()
def test_untouched_channels_are_decoded_as_the_network_does(model: str, settings: dict) -> None:
    network = create_model(model, **settings).eval()
    images, labels = torch.rand(3, 1, 28, 28), torch.tensor([1, 2, 3])
    features = network.forward_features(images)
    masked = (labels,) if model == "capsnet" else ()
    maps = read_maps(network, images)
    # Half the image's size, or what windows of nine leave of it: the stride is two in both.
    assert maps.shape[-1] == (6 if model == "capsnet" else 14)
    torch.testing.assert_close(draw(network, maps, labels), network.reconstruct(features, *masked))
    turned = draw(network, transform(maps, "R-90"), labels)
    assert not torch.allclose(turned, draw(network, maps, labels))


def test_averages_take_the_consistent_shift_where_there_is_one() -> None:
    sums = {f"mse {name}": 1.0 for name in names()}
    sums |= {f"mse Shift-{n}, doubled": 0.0 for n in (1, 2, 4)}
    sums |= {f"mse {name}, channels untouched": 2.0 for name in names()}
    assert averages(sums) == {
        "mse average": 1.0,
        "mse average, doubled": pytest.approx(15 / 18),
        "mse average, channels untouched": 2.0,
    }


def test_pictures_survive_as_text() -> None:
    pictures = torch.randint(0, 16, (2, 3, 4, 5)) / 15
    text = pack(pictures)
    assert text.startswith("2x3x4x5:")
    assert not set(text) & set(",\"'\n")
    torch.testing.assert_close(unpack(text), pictures)
    assert torch.equal(mosaic(pictures)[4:8, 5:10], pictures[1, 1])
    with pytest.raises(ValueError, match="expected 121 pixels"):
        unpack(text.replace("2x3x4x5", "11x11"))
