"""Batches of each step and process; the global batches do not depend on the number of processes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from clustercaps import data
from clustercaps.data import Augment, FolderImages, Images, Prepare
from clustercaps.training.own_data import ready
from clustercaps.training.settings import TrainSettings

# For testing. Larger than a training batch: nothing is saved for a backward pass.
BATCH = 250

# Reads a dataset into memory: takes its name, "train" or "test", and the folder of its files.
Load = Callable[[str, str, str | None], Images]


@dataclass(frozen=True)
class Share:
    """The rank of this process, and the number of processes."""

    rank: int = 0
    world: int = 1


@dataclass
class Batch:
    """This process's part of a batch: preprocessed images and their labels."""

    images: Tensor
    labels: Tensor
    # Images in the whole batch, over all parts and processes.
    total: int


class TrainBatches:
    """The training images, in batches of a fixed global size.

    Image order and augmentation depend only on the seed, so that a resumed run, or a run on several
    processes, sees the same batches.

    Args:
        source: A dataset in memory, or one streamed from a folder.
        augment: Augmentation or preprocessing, applied on the device.
        settings: Settings of the run.
        share: Rank and number of processes.
        device: Device of the batches.
        workers: Data loading processes for streamed images.
    """

    def __init__(
        self,
        source: Images | FolderImages,
        augment: Augment | Prepare,
        settings: TrainSettings,
        share: Share,
        device: torch.device,
        workers: int = 2,
    ) -> None:
        self.source, self.augment, self.settings = source, augment, settings
        self.share, self.device, self.workers = share, device, workers
        if isinstance(source, Images):
            self.pixels, self.labels = source.pixels.to(device), source.labels.to(device)
            coins = torch.Generator().manual_seed(mix(settings.seed))
            self.mirrored_first = torch.rand(len(source), generator=coins) < 0.5

    def __len__(self) -> int:
        """Steps per epoch; the last batch may be smaller, so that no image is skipped."""
        images = min(len(self.source), self.settings.epoch_images or len(self.source))
        return -(-images // self.settings.batch_size)

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[list[Batch]]:
        """The steps of an epoch, starting at `first_step`, each in `accumulate` parts."""
        generator = torch.Generator().manual_seed(mix(self.settings.seed, epoch))
        order = torch.randperm(len(self.source), generator=generator)
        order = order[: self.settings.epoch_images or None]
        steps = list(order.split(self.settings.batch_size))[first_step:]
        if isinstance(self.source, Images):
            for number, chosen in enumerate(steps, first_step):
                yield self._from_memory(chosen, epoch, number)
        else:
            self.source.set_epoch(epoch)
            yield from self._from_folder(steps)

    def _parts(self, total: int) -> list[Tensor]:
        """This process's positions in a batch, in `accumulate` parts."""
        mine = torch.arange(self.share.rank, total, self.share.world)
        return list(mine.tensor_split(self.settings.accumulate))

    def _from_memory(self, chosen: Tensor, epoch: int, step: int) -> list[Batch]:
        total = len(chosen)
        generator = torch.Generator().manual_seed(mix(self.settings.seed, epoch, step))
        numbers = Augment.numbers(total, generator)
        if self.settings.flips == "alternating":
            # 0 is below any flip probability, 1 is above.
            numbers[:, 6] = (~(self.mirrored_first[chosen] ^ (epoch % 2 == 1))).double()
        boxes = Augment.boxes(total, generator) if self.settings.erase else None
        batches = []
        for part in self._parts(total):
            pixels = self.pixels[chosen[part].to(self.device)]
            if isinstance(self.augment, Augment):
                own = None if boxes is None else boxes[part]
                images = self.augment.apply(pixels, numbers[part], own)
            else:
                images = self.augment(pixels)
            batches.append(Batch(images, self.labels[chosen[part].to(self.device)], total))
        return batches

    def _from_folder(self, steps: list[Tensor]) -> Iterator[list[Batch]]:
        parts = [chosen[part].tolist() for chosen in steps for part in self._parts(len(chosen))]
        assert isinstance(self.source, FolderImages)
        loader = iter(streaming_loader(self.source, parts, self.workers))
        prepare = self.augment.prepare if isinstance(self.augment, Augment) else self.augment
        for chosen in steps:
            batches = []
            for _ in range(self.settings.accumulate):
                pixels, labels = next(loader)
                batches.append(
                    Batch(prepare(pixels.to(self.device)), labels.to(self.device), len(chosen))
                )
            yield batches


def evaluation_batches(
    source: Images | FolderImages,
    prepare: Prepare,
    batch_size: int,
    share: Share,
    device: torch.device,
    workers: int = 2,
) -> Iterator[tuple[Tensor, Tensor]]:
    """This process's part of a test set: every image belongs to exactly one process."""
    mine = torch.arange(share.rank, len(source), share.world).split(batch_size)
    if isinstance(source, Images):
        for part in mine:
            yield prepare(source.pixels[part].to(device)), source.labels[part].to(device)
    else:
        for pixels, labels in streaming_loader(source, [p.tolist() for p in mine], workers):
            yield prepare(pixels.to(device)), labels.to(device)


def streaming_loader(
    source: Dataset[tuple[Tensor, int]], parts: list[list[int]], workers: int
) -> DataLoader[tuple[Tensor, int]]:
    """Read the given images, batch by batch, in worker processes."""
    return DataLoader(source, batch_sampler=parts, num_workers=workers)


def open_split(
    settings: TrainSettings, split: str, data_dir: str | None, load: Load | None = None
) -> Images | FolderImages:
    """The images for training ("train") or testing ("test", "novel").

    With `validate`, both come from the training set and the test set is not used. With `views`,
    "train" and "test" are the familiar viewpoints of their splits, and "novel" is the rest of the
    test set.

    Args:
        settings: Settings of the run.
        split: "train", "test" or "novel".
        data_dir: Folder with the official files, if not the cache.
        load: Reads a dataset into memory; `data.load` by default.
    """
    if split == "novel" and not settings.views:
        raise ValueError('the split "novel" needs the setting views')
    wanted = "train" if settings.validate or split == "train" else "test"
    images: Images | FolderImages
    if settings.data.startswith("own:") and load is None:
        raise ValueError(
            f"{settings.data} names images that are given in Python: pass train= and test= to "
            "cc.training.train, or train on a folder:PATH"
        )
    if data.is_streamed(settings.data):
        images = data.open_folder(
            settings.data, wanted, data_dir, crop=settings.side, seed=settings.seed
        )
    else:
        images = (load or data.load)(settings.data, wanted, data_dir)
    if settings.validate:
        kept, held_out = data.validation_split(images.labels)
        images = images.subset(kept if split == "train" else held_out)
    if settings.views:
        assert isinstance(images, Images)
        familiar, novel = data.viewpoint_split(images, settings.views)
        images = images.subset(novel if split == "novel" else familiar)
    limit = "limit" if split == "train" else "test_limit"
    if getattr(settings, limit):
        images = images.subset(balanced(images.labels, getattr(settings, limit), limit))
    if not len(images):
        raise ValueError(
            f"{settings.data} has too few images to hold out a fifth of a class; remove validate"
        )
    return ready(images, settings, split)


def class_names(images: Images | FolderImages) -> tuple[str, ...]:
    """Names of the classes of a dataset, in the order of the labels."""
    return images.meta["class_names"] if isinstance(images, Images) else images.class_names


def balanced(labels: Tensor, count: int, name: str = "limit") -> Tensor:
    """Indices of the first `count` images, balanced over classes, in ascending order.

    Args:
        labels: Labels of all images.
        count: Number of images.
        name: Name of the count in error messages.
    """
    if count > len(labels):
        raise ValueError(f"{name} is {count:,}, but there are only {len(labels):,} images")
    turn = torch.empty_like(labels)
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        turn[members] = torch.arange(len(members))
    # First images of every class first; a stable sort keeps their order.
    return turn.argsort(stable=True)[:count].sort().values


def mix(*numbers: int) -> int:
    """One seed from several numbers, without collisions between neighbours."""
    seed = 0
    for number in numbers:
        # The multiplier of a common 64-bit linear congruential generator.
        seed = (seed * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return seed
