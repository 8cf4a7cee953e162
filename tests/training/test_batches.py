import pytest
import torch

from clustercaps import data
from clustercaps.data import Images
from clustercaps.training.batches import (
    Share,
    TrainBatches,
    balanced,
    evaluation_batches,
    mix,
    open_split,
)
from clustercaps.training.settings import resolve

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def images() -> Images:
    return data.load("fashion-mnist-mini", "train").subset(slice(0, 150))


def batches_of(images: Images, rank: int = 0, world: int = 1, **changes: object) -> TrainBatches:
    settings = resolve("m1", "fashion-mnist-mini", **changes)
    augment = data.train_transform("fashion-mnist-mini")
    return TrainBatches(images, augment, settings, Share(rank, world), CPU)


def test_an_epoch_has_every_image_once(images: Images) -> None:
    batches = batches_of(images)
    seen = [batch for parts in batches.epoch(0) for batch in parts]
    assert len(batches) == len(seen) == 3
    assert [len(batch.labels) for batch in seen] == [64, 64, 22]
    counts = torch.bincount(torch.cat([b.labels for b in seen]), minlength=10)
    assert counts.equal(torch.bincount(images.labels, minlength=10))


def test_epochs_and_seeds_differ_and_repeat(images: Images) -> None:
    def first(**changes: object) -> torch.Tensor:
        epoch = changes.pop("epoch", 0)
        return next(batches_of(images, **changes).epoch(epoch))[0].images

    assert first().equal(first())
    assert not first().equal(first(epoch=1))
    assert not first().equal(first(seed=1))


def test_starting_in_the_middle_gives_the_rest(images: Images) -> None:
    batches = batches_of(images)
    whole, rest = list(batches.epoch(3)), list(batches.epoch(3, first_step=1))
    assert len(rest) == 2
    for expected, found in zip(whole[1:], rest, strict=True):
        assert found[0].images.equal(expected[0].images)


@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (3, 2), (1, 4), (5, 1)])
def test_processes_and_parts_share_the_same_batches(
    images: Images, world: int, accumulate: int
) -> None:
    alone = list(batches_of(images).epoch(1))
    shared = [
        list(batches_of(images, rank, world, accumulate=accumulate).epoch(1))
        for rank in range(world)
    ]
    for step, (whole,) in enumerate(alone):
        parts = [part for process in shared for part in process[step]]
        assert len(parts) == world * accumulate
        assert {part.total for part in parts} == {len(whole.labels)}
        found = torch.cat([part.images for part in parts])
        assert len(found) == len(whole.images)
        # The same augmented images, in another order.
        key = found.flatten(1).sum(1)
        assert key.sort().values.allclose(whole.images.flatten(1).sum(1).sort().values)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_evaluation_has_every_image_exactly_once(images: Images, world: int) -> None:
    tagged = Images(images.pixels, torch.arange(len(images)), dict(images.meta))
    prepare = data.test_transform("fashion-mnist-mini")
    seen = [
        labels
        for rank in range(world)
        for _, labels in evaluation_batches(tagged, prepare, 40, Share(rank, world), CPU)
    ]
    assert torch.cat(seen).sort().values.equal(torch.arange(len(images)))


def test_validation_fifth_is_not_trained_on() -> None:
    settings = resolve("m1", "fashion-mnist-mini", validate=True)
    kept, held_out = (open_split(settings, split, None) for split in ("train", "test"))
    assert (len(kept), len(held_out)) == (8_000, 2_000)
    assert torch.bincount(held_out.labels).tolist() == [200] * 10
    assert held_out.meta["split"] == "train"
    digests = {image.numpy().tobytes() for image in kept.pixels}
    # Two photographs of one article may be equal to the byte, hence not zero.
    assert sum(image.numpy().tobytes() in digests for image in held_out.pixels) < 5


def test_limit_is_balanced() -> None:
    settings = resolve("m1", "fashion-mnist-mini", limit=200)
    assert torch.bincount(open_split(settings, "train", None).labels).tolist() == [20] * 10
    with pytest.raises(ValueError, match="limit is 7, but there are only 3"):
        balanced(torch.tensor([0, 1, 1]), 7)


def test_seeds_do_not_collide() -> None:
    seeds = {mix(a, b, c) for a in range(20) for b in range(20) for c in range(20)}
    assert len(seeds) == 8000


def test_short_epochs_draw_other_images_each_time(images: Images) -> None:
    whole, part = batches_of(images), batches_of(images, epoch_images=6)

    def labels(batches: TrainBatches, epoch: int) -> list[int]:
        return [int(n) for step in batches.epoch(epoch) for b in step for n in b.labels]

    assert len(labels(part, 0)) == len(labels(part, 1)) == 6
    assert labels(part, 0) == labels(whole, 0)[:6]
    assert labels(part, 0) != labels(part, 1)
