"""Crops of random area, resized to the input."""

import torch

from clustercaps.data import Augment, Prepare
from clustercaps.data.augment import crop_windows, resized_crops


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_windows_are_in_the_image_and_as_large_as_asked():
    numbers = torch.rand(2000, 4, dtype=torch.float64, generator=rng())
    top, left, tall, broad = crop_windows(0.3, numbers).double().unbind(1)
    assert min(top.min(), left.min()) >= 0
    assert max((top + tall).max(), (left + broad).max()) <= 1 + 1e-6
    inside = (tall < 1) & (broad < 1)
    area = (tall * broad)[inside]
    assert 0.3 <= area.min() + 1e-6 < 0.31
    assert area.max() > 0.9
    aspect = (broad / tall)[inside]
    assert 3 / 4 - 1e-6 <= aspect.min() < 0.76
    assert 1.32 < aspect.max() <= 4 / 3 + 1e-6
    # Area, position and shape come from numbers of their own.
    extreme = torch.tensor([[1.0, 0.0, 0.0, 0.5], [0.0, 1.0, 1.0, 0.5]], dtype=torch.float64)
    side = 0.25**0.5
    wanted = torch.tensor([[1 - side, 0, side, side], [0, 0, 1, 1]])
    assert torch.allclose(crop_windows(0.25, extreme), wanted, atol=1e-6)


def test_resized_crops_are_windows_between_pixels():
    images = torch.rand(3, 2, 8, 10, generator=rng())
    whole, part = torch.tensor([0, 0, 1, 1.0]), torch.tensor([0.25, 0.2, 0.5, 0.6])
    same = resized_crops(images, torch.stack([whole] * 3), 8, 10)
    assert torch.allclose(same, images, atol=1e-5)
    got = resized_crops(images, torch.stack([part, whole, part]), 4, 6)
    assert torch.allclose(got[0], images[0, :, 2:6, 2:8], atol=1e-5)
    assert torch.allclose(got[2], images[2, :, 2:6, 2:8], atol=1e-5)
    wider = torch.nn.functional.interpolate(images[:1, :, 2:6, 2:8], (8, 12), mode="bilinear")
    large = resized_crops(images[:1], part[None], 8, 12)
    # Away from the edge of the window, where the crop sees the pixels outside.
    assert torch.allclose(large[..., 1:-1, 1:-1], wider[..., 1:-1, 1:-1], atol=1e-5)


def test_crops_of_random_area_are_reproducible_and_normalised():
    prepare = Prepare(12, mean=(0.5,) * 3, std=(0.25,) * 3)
    augment = Augment(prepare, jitter=0.2, flip=0.5, crop_area=0.3)
    batch = torch.full((5, 3, 14, 14), 128, dtype=torch.uint8)
    assert augment(batch, rng(1)).shape == (5, 3, 12, 12)
    assert torch.equal(augment(batch, rng(1)), augment(batch, rng(1)))
    # A grey image stays grey, wherever it is cropped.
    still = Augment(prepare, crop_area=0.3)(batch, rng(1))
    assert torch.allclose(still, torch.full_like(still, (128 / 255 - 0.5) / 0.25), atol=1e-5)
    parts = torch.randint(0, 256, (5, 3, 14, 14), dtype=torch.uint8, generator=rng(2))
    numbers = augment.numbers(5, rng(3))
    one = torch.cat([augment.apply(parts[i : i + 1], numbers[i : i + 1]) for i in range(5)])
    assert torch.allclose(augment.apply(parts, numbers), one, atol=1e-6)
