"""The paper's augmentation: against a plain loop, per image, per seed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clustercaps.data import SETS, Augment, Prepare, test_transform, train_transform

NAMES = sorted(SETS)
STEREO = {"smallnorb", "rendered-norb", "rendered-norb-25"}


def pixels_like(name: str, count: int = 6, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (count, *SETS[name].shape)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def plain(name: str, image: torch.Tensor) -> torch.Tensor:
    """One image as numbers, float64, before anything random."""
    image = image.double() / 255
    if name in STEREO:
        small = torch.zeros(2, 48, 48, dtype=torch.float64)
        for row in range(48):
            for column in range(48):
                block = image[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
                small[:, row, column] = block.mean(dim=(1, 2))
        image = (small - small.mean()) / small.std(correction=0)
    return image


def finish(name: str, image: torch.Tensor) -> torch.Tensor:
    known = SETS[name]
    if known.mean is None:
        return image
    mean, std = (
        torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (known.mean, known.std)
    )
    return (image - mean) / std


# Size after padding and largest shift in pixels, from the paper (smallNORB: 0.2 of 56 is 11.2).
PADDED = {"mnist": 36, "svhn": 40, "cifar10": 40, **dict.fromkeys(STEREO, 56)}
FLIPPED = {"fashion-mnist", "fashion-mnist-mini", "cifar10"}


def one_by_one(name: str, batch: torch.Tensor, draws) -> torch.Tensor:
    """The paper's sentence for one image after another: jitter, pad, shift, crop, flip."""
    results = []
    reach = 11 if name in STEREO else 0
    for i, image in enumerate(batch):
        f = plain(name, image)
        g = draws.contrast[i].double() * f + draws.brightness[i].double() * f.mean()
        side = PADDED.get(name, 36) + 2 * reach
        canvas = torch.zeros(len(g), side, side, dtype=torch.float64)
        margin = (side - g.shape[-1]) // 2
        canvas[:, margin : side - margin, margin : side - margin] = g
        top, left = int(draws.top[i]), int(draws.left[i])
        crop = canvas[:, top : top + 32, left : left + 32]
        assert crop.shape[-2:] == (32, 32)
        if draws.mirrored[i]:
            crop = torch.stack([crop[:, :, 31 - column] for column in range(32)], dim=-1)
        results.append(finish(name, crop))
    return torch.stack(results)


@pytest.mark.parametrize("name", NAMES)
def test_batch_equals_the_plain_loop(name):
    augment, batch = train_transform(name), pixels_like(name)
    got = augment(batch, rng(5))
    side = 48 if name in STEREO else batch.shape[-1]
    draws = augment.draw(augment.numbers(len(batch), rng(5)), side, side)
    expected = one_by_one(name, batch, draws)
    assert got.dtype == torch.float32
    assert got.shape[1:] == (SETS[name].shape[0], 32, 32)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_draws_have_the_range_the_paper_states(name):
    augment, count = train_transform(name), 20_000
    side = 48 if name in STEREO else SETS[name].shape[-1]
    draws = augment.draw(augment.numbers(count, rng()), side, side)
    for values, middle in ((draws.contrast, 1.0), (draws.brightness, 0.0)):
        assert float(values.min()) == pytest.approx(middle - 0.2, abs=1e-3)
        assert float(values.max()) == pytest.approx(middle + 0.2, abs=1e-3)
        assert float(values.mean()) == pytest.approx(middle, abs=5e-3)
    reach = 11 if name in STEREO else 0
    places = PADDED.get(name, 36) - 32 + 1 + 2 * reach
    for starts in (draws.top, draws.left):
        assert set(starts.tolist()) == set(range(places))
        if not reach:
            frequencies = starts.bincount().double() / count
            assert float((frequencies * places - 1).abs().max()) < 0.2
    share = float(draws.mirrored.double().mean())
    assert share == pytest.approx(0.5 if name in FLIPPED else 0.0, abs=0.02)
    columns = [draws.contrast, draws.brightness, draws.top, draws.left]
    table = torch.stack([column.double() for column in columns])
    # Independent of each other, not one number used twice.
    assert float((table.corrcoef() - torch.eye(4)).abs().max()) < 0.05


def test_shift_moves_the_crop_over_the_whole_range():
    """Crop place minus shift: the sum of two uniform draws, largest in the middle."""
    augment = train_transform("smallnorb")
    starts = augment.draw(augment.numbers(50_000, rng()), 48, 48).top
    crop = torch.arange(25).repeat_interleave(23)
    shift = torch.arange(-11, 12).repeat(25)
    expected = (crop - shift + 11).bincount(minlength=47).double() / (25 * 23)
    frequencies = starts.bincount(minlength=47).double() / 50_000
    assert float((frequencies - expected).abs().max()) < 0.004


@pytest.mark.parametrize("name", NAMES)
def test_the_generator_decides_and_nothing_else(name):
    augment, batch = train_transform(name), pixels_like(name)
    generator = rng(1)
    first = augment(batch, generator)
    second = augment(batch, generator)
    torch.rand(3)
    assert torch.equal(first, augment(batch, rng(1)))
    assert not torch.equal(first, second)
    assert not torch.equal(first, augment(batch, rng(2)))
    assert torch.equal(batch, pixels_like(name))


def test_every_image_has_its_own_draw():
    batch = pixels_like("cifar10", 1).repeat(32, 1, 1, 1)
    results = train_transform("cifar10")(batch, rng())
    assert len({result.numpy().tobytes() for result in results}) == 32


def test_an_image_does_not_depend_on_its_neighbours():
    batch = pixels_like("fashion-mnist", 12)
    augment = train_transform("fashion-mnist")
    torch.testing.assert_close(augment(batch, rng())[:5], augment(batch[:5], rng()))


@pytest.mark.parametrize("name", NAMES)
def test_test_images_are_centred(name):
    batch = pixels_like(name, 3)
    got = test_transform(name)(batch)
    assert torch.equal(got, test_transform(name)(batch))
    for image, result in zip(batch, got, strict=True):
        f = plain(name, image)
        if name in STEREO:
            f = f[:, 8:40, 8:40]
        elif f.shape[-1] == 28:
            canvas = torch.zeros(1, 32, 32, dtype=torch.float64)
            canvas[:, 2:30, 2:30] = f
            f = canvas
        torch.testing.assert_close(result.double(), finish(name, f), rtol=1e-5, atol=2e-5)


def test_without_normalisation_pixels_stay_between_0_and_1():
    batch = pixels_like("cifar10")
    assert torch.equal(test_transform("cifar10", normalise=False)(batch), batch.float() / 255)
    jittered = train_transform("fashion-mnist", normalise=False)(
        torch.full((4, 1, 28, 28), 255, dtype=torch.uint8), rng()
    )
    # Black padding, and no clipping above white.
    assert float(jittered.min()) == 0
    assert float(jittered.max()) > 1


def test_an_even_grey_image_is_finite():
    batch = torch.full((2, 2, 96, 96), 200, dtype=torch.uint8)
    assert test_transform("smallnorb")(batch).abs().max() < 1e-3


def test_streamed_sets_are_only_normalised():
    batch = torch.randint(0, 256, (2, 3, 50, 60), dtype=torch.uint8)
    got = train_transform("imagenet")(batch, rng())
    assert got.shape == (2, 3, 50, 60)
    assert torch.equal(got, test_transform("folder:anywhere")(batch))
    expected = (batch[:, 0] / 255 - 0.485) / 0.229
    torch.testing.assert_close(got[:, 0], expected, rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=25)
@given(st.integers(8, 40), st.integers(8, 40), st.integers(0, 4), st.floats(0, 0.5))
def test_any_size_that_fits(height, width, padding, shift):
    size = min(height, width) // 2 + padding
    augment = Augment(Prepare(size), padding=padding, shift=shift, jitter=0.1, flip=0.5)
    batch = torch.full((3, 2, height, width), 255, dtype=torch.uint8)
    result = augment(batch, rng())
    assert result.shape == (3, 2, size, size)
    assert torch.isfinite(result).all()


def test_a_crop_that_does_not_fit():
    batch = torch.zeros(2, 1, 20, 32, dtype=torch.uint8)
    with pytest.raises(ValueError, match="crop of 32 is larger than 20 pixels padded by 4"):
        train_transform("mnist")(batch, rng())


# Dataset and size -> side before the crop, padding of training images, where test images begin.
SIZED = {
    ("mnist", 28): (28, 2, 0),
    ("mnist", 32): (28, 4, -2),
    ("mnist", 24): (28, 0, 2),
    ("fashion-mnist", 64): (64, 4, 0),
    ("cifar10", 24): (32, 0, 4),
    ("cifar10", 28): (32, 2, 2),
    ("cifar10", 64): (64, 8, 0),
    ("svhn", 36): (32, 6, -2),
    ("smallnorb", 32): (48, 4, 8),
    ("smallnorb", 48): (64, 0, 8),
    ("smallnorb", 64): (64, 11, 0),
    ("rendered-norb", 96): (96, 16, 0),
}


@pytest.mark.parametrize(("name", "size"), SIZED)
def test_every_size_has_its_crops(name, size):
    side, padding, start = SIZED[name, size]
    prepare, augment = test_transform(name, size=size), train_transform(name, size=size)
    batch = pixels_like(name, 3)
    tested, trained = prepare(batch), augment(batch, rng())
    assert tested.shape[1:] == trained.shape[1:] == (SETS[name].shape[0], size, size)
    scaled = prepare.scale(batch)
    assert scaled.shape[-1] == side
    assert augment.padding == padding
    # Test images are the centre of the scaled ones, or lie in the centre of a black frame.
    end, wanted = min(side, start + size), scaled[..., max(0, start) :, max(0, start) :]
    wanted = prepare.normalise(wanted[..., : end - max(0, start), : end - max(0, start)])
    inner = max(0, -start)
    got = tested[..., inner : size - inner, inner : size - inner]
    torch.testing.assert_close(got, wanted)


def test_crops_of_24_lie_anywhere_in_the_image():
    augment = train_transform("cifar10", size=24)
    draws = augment.draw(augment.numbers(5000, rng()), 32, 32)
    assert set(draws.top.tolist()) == set(draws.left.tolist()) == set(range(9))


def test_28_pixels_of_mnist_are_untouched_at_test_and_shifted_by_two_in_training():
    batch = pixels_like("mnist", 2)
    plain = test_transform("mnist", normalise=False, size=28)(batch)
    assert torch.equal(plain, batch.float() / 255)
    augment = train_transform("mnist", normalise=False, size=28)
    numbers = torch.zeros(2, 7, dtype=torch.float64)
    # No change of contrast or brightness; the first place of a crop.
    numbers[:, :2] = 0.5
    got = augment.apply(batch, numbers)
    assert not got[..., :2, :].any()
    assert torch.equal(got[..., 2:, 2:], plain[..., :-2, :-2])


def test_resizing_keeps_what_an_image_shows():
    ramp = torch.linspace(0, 255, 96).round().to(torch.uint8).expand(1, 2, 96, 96)
    for side in (64, 96):
        small = test_transform("smallnorb", size=side).scale(ramp)
        expected = torch.arange(side, dtype=torch.float32)
        assert torch.corrcoef(torch.stack([small[0, 0, 0], expected]))[0, 1] > 0.9999
    black = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    black[..., 16:] = 200
    large = test_transform("cifar10", normalise=False, size=64)(black)
    assert torch.equal(large[..., :30], torch.zeros(1, 3, 64, 30))
    torch.testing.assert_close(large[..., 34:], torch.full((1, 3, 64, 30), 200 / 255))


def test_whole_stereo_pairs_are_padded_with_their_edges():
    batch = pixels_like("smallnorb", 1)
    augment = train_transform("smallnorb", size=96)
    numbers = torch.full((1, 7), 0.5, dtype=torch.float64)
    numbers[:, 2:4] = 0
    got, scaled = augment.apply(batch, numbers), augment.prepare.scale(batch)
    torch.testing.assert_close(got[..., :17, 20], scaled[..., :1, 4].expand(1, 2, 17))
    torch.testing.assert_close(got[..., 16:, 16:], scaled[..., :80, :80])


def test_unknown_set():
    with pytest.raises(KeyError, match="did you mean 'cifar10'"):
        train_transform("cifar-10")


def test_a_share_of_a_batch_is_augmented_as_in_the_whole():
    augment, batch = train_transform("cifar10"), pixels_like("cifar10", 10)
    numbers = augment.numbers(10, rng())
    mine = torch.arange(1, 10, 3)
    assert augment.apply(batch[mine], numbers[mine]).equal(augment.apply(batch, numbers)[mine])
