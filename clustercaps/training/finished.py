"""Finished runs, for testing and prediction."""

import glob
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clustercaps import data
from clustercaps.data.folders import EXTENSIONS, size_before_crop
from clustercaps.models import ImageClassifier, from_pretrained
from clustercaps.models.packaged import find_pretrained
from clustercaps.training.batches import open_split
from clustercaps.training.run_folder import CONFUSION, MODEL, RESULT, RunFolder
from clustercaps.training.scoring import BATCH, Score, score
from clustercaps.training.settings import TrainSettings
from clustercaps.utils.devices import pick_device
from clustercaps.utils.tables import printable

# Luma coefficients of red, green and blue (ITU-R 601).
GREY = (0.299, 0.587, 0.114)

OVERFLOW = "the output of the network is not finite"
TEST_PARTS = ("test", "novel")


@dataclass(frozen=True)
class Trained:
    """A trained network with the settings of its run and its class names.

    Attributes:
        model: The network, in eval mode.
        settings: The settings of its run.
        class_names: One name per class, in the order of the logits.
    """

    model: ImageClassifier
    settings: TrainSettings
    class_names: tuple[str, ...]

    @classmethod
    def open(cls, path: Path | str, device: str = "cpu") -> "Trained":
        """Load a finished run, or weights inside the package.

        Args:
            path: The run's folder, or packaged weights as "model:data".
            device: Where the network goes, as `pick_device` takes it.
        """
        place = pick_device(device)
        folder = find_pretrained(str(path)) or Path(path)
        settings, result = finished_run(folder)
        model = from_pretrained(RunFolder(folder).model)
        names = tuple(result["class_names"])
        if len(names) != model.num_classes:
            raise ValueError(
                f"{folder / RESULT} names {len(names)} classes, but the network in "
                f"{folder / MODEL} has {model.num_classes}; restore the files of the run"
            )
        return cls(model.to(place), settings, names)

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.model.parameters()).device

    @property
    def prepare(self) -> data.Prepare:
        """What makes stored images ready for the network."""
        return data.test_transform(self.settings.data, size=self.model.img_size[0])

    def open_images(
        self, name: str, split: str = "test", data_dir: str | None = None
    ) -> data.Images | data.FolderImages:
        """A dataset with the classes that the network was trained on."""
        images: data.Images | data.FolderImages
        if data.is_streamed(name):
            images = data.open_folder(name, split, data_dir, crop=self.model.img_size[0])
            names = images.class_names
        else:
            images = data.load(name, split, data_dir)
            names = images.meta["class_names"]
        if tuple(names) != self.class_names:
            raise ValueError(
                f"{name} has the classes {first_names(names)}; the network was trained on "
                f"{first_names(self.class_names)}; pass a dataset with the same classes"
            )
        return images

    def score(self, images: data.Images | data.FolderImages) -> Score:
        """Test the network on these images."""
        classes = len(self.class_names)
        found = score(self.model, images, self.prepare, classes, self.device)
        if not math.isfinite(found.loss):
            raise ValueError(f"{OVERFLOW}; its error means nothing")
        return found

    @torch.no_grad()
    def predict(self, paths: Sequence[Path]) -> Iterator[Tensor]:
        """Class probabilities of image files, one vector per file."""
        for start in range(0, len(paths), BATCH):
            pixels = torch.stack([self._read(path) for path in paths[start : start + BATCH]])
            logits = self.model(self.prepare(pixels.to(self.device)))
            if not logits.isfinite().all():
                raise ValueError(f"{OVERFLOW} for {paths[start]} or one of the images after it")
            yield from logits.softmax(1).cpu()

    def _read(self, path: Path) -> Tensor:
        """An image file in the format of the training set."""
        if data.is_streamed(self.settings.data):
            crop = self.model.img_size[0]
            resize = size_before_crop(crop)
            edge = (resize - crop) // 2
            return data.read_image(path, resize)[:, edge : edge + crop, edge : edge + crop]
        channels, side, _ = data.info(self.settings.data).shape
        pixels = data.read_image(path, side)
        if channels == 3:
            return pixels
        if channels == 1:
            grey = (pixels * torch.tensor(GREY).view(3, 1, 1)).sum(0, keepdim=True)
            return grey.round().to(torch.uint8)
        raise ValueError(
            f"{self.settings.data} has {channels} channels an image; a single file cannot give them"
        )


def finished_run(path: Path) -> tuple[TrainSettings, dict[str, Any]]:
    """Settings and result of a run; raises an error if it is not finished."""
    folder = RunFolder(path)
    settings, result = folder.settings, folder.result
    if settings is None:
        raise ValueError(f"{path} contains no run; pass the --out folder of `clustercaps train`")
    if result is None:
        raise ValueError(
            f"the run in {path} is not finished; run clustercaps train --resume --out {path}"
        )
    names = result.get("class_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path / RESULT} is corrupt: class_names must be a list of names")
    return settings, result


def first_names(names: Sequence[str]) -> str:
    """The first class names, to tell datasets apart."""
    return printable(", ".join(names[:5])) + (", ..." if len(names) > 5 else "")


def last_test(path: Path, data_dir: str | None = None) -> dict[str, Score]:
    """Scores of the last test of a finished run: "test" and, for runs with `views`, "novel".

    Runs of version 0.1.0 did not store them: such a network is tested again.
    """
    folder = RunFolder(path)
    stored = folder.last_test
    if stored is not None:
        return read_scores(stored, path / CONFUSION)
    print(f"{path} has no confusion.json: testing its network once", file=sys.stderr)
    trained = Trained.open(path, "auto")
    # With --validate, these are the held-out images, not the test set.
    parts = TEST_PARTS if trained.settings.views else TEST_PARTS[:1]
    scores = {part: trained.score(open_split(trained.settings, part, data_dir)) for part in parts}
    folder.keep_last_test(trained.class_names, {p: s.to_plain() for p, s in scores.items()})
    return scores


def read_scores(stored: Mapping[str, Any], path: Path) -> dict[str, Score]:
    """The scores in `confusion.json`; its matrices must have as many classes as it names."""
    try:
        scores = {part: Score.from_plain(stored[part]) for part in TEST_PARTS if part in stored}
        classes = len(stored["class_names"])
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{path} is corrupt ({error}); delete it, and the network is tested again"
        ) from error
    for part, found in scores.items():
        counts = found.confusion
        if counts.shape != (classes, classes) or counts.dtype != torch.int64 or counts.min() < 0:
            raise ValueError(
                f"{path} is corrupt: {part} must have counts of {classes} x {classes} classes; "
                "delete it, and the network is tested again"
            )
    return scores


def find_images(patterns: Sequence[str]) -> list[Path]:
    """The image files that match paths, folders and glob patterns."""
    found: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            matches = [p for p in sorted(path.rglob("*")) if p.suffix.lower() in EXTENSIONS]
        elif path.exists():
            matches = [path]
        else:
            matches = [Path(p) for p in sorted(glob.glob(pattern, recursive=True))]
        if not matches:
            raise FileNotFoundError(f"no image at {pattern}; pass files, folders or glob patterns")
        found += matches
    return found
