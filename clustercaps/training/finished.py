"""Trained networks and finished runs, for testing and prediction."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clustercaps import data
from clustercaps.models import ImageClassifier, from_pretrained
from clustercaps.models.locate import CONFIG_FILE, locate
from clustercaps.models.packaged import find_pretrained
from clustercaps.training.batches import BATCH, class_names, open_split
from clustercaps.training.card import card_facts
from clustercaps.training.preprocessing import prepare_of, preprocessing_of, read_pixels
from clustercaps.training.run_folder import CONFUSION, MODEL, RESULT, SETTINGS, RunFolder
from clustercaps.training.scoring import Score, score
from clustercaps.training.settings import TrainSettings
from clustercaps.utils.devices import pick_device
from clustercaps.utils.preprocessing import Preprocessing
from clustercaps.utils.tables import printable

OVERFLOW = "the output of the network is not finite"
TEST_PARTS = ("test", "novel")


@dataclass(frozen=True)
class Trained:
    """A trained network that knows its preprocessing, so that it can classify images.

    Attributes:
        model: The network; it has `preprocessing` with class names.
        settings: Settings of its run; None if only the network is there.
        result: The result of its run; empty if only the network is there.
    """

    model: ImageClassifier
    settings: TrainSettings | None = None
    result: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        name: Path | str,
        device: str = "cpu",
        data_name: str | None = None,
        load: Callable[[Path], ImageClassifier] = from_pretrained,
    ) -> "Trained":
        """Load a trained network.

        Args:
            name: The folder of a finished run, a folder that `save_pretrained` wrote, packaged
                weights as "model:data", or a model on the Hub as "user/repo".
            device: Where the network goes, as `pick_device` takes it.
            data_name: The dataset of the network, for a folder that does not say how images are
                preprocessed.
            load: Loads the network from its folder.
        """
        place = pick_device(device)
        run = run_folder_of(name)
        if run is None:
            model = load(locate(name))
            model.preprocessing = known_preprocessing(model, str(name), data_name)
            return cls(model.to(place))
        settings, result = finished_run(run)
        model = load(RunFolder(run).model)
        names = result["class_names"]
        if len(names) != model.num_classes:
            raise ValueError(
                f"{run / RESULT} names {len(names)} classes, but the network in "
                f"{run / MODEL} has {model.num_classes}; restore the files of the run"
            )
        if model.preprocessing is None:
            # A run of version 0.2.0 or earlier.
            model.preprocessing = preprocessing_of(settings.data, settings.side, names)
        return cls(model.to(place), settings, result)

    @property
    def preprocessing(self) -> Preprocessing:
        """What the network expects of an image, and its class names."""
        assert self.model.preprocessing is not None
        return self.model.preprocessing

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the outputs."""
        return self.preprocessing.class_names

    @property
    def title(self) -> str:
        """The name of the network, or its class if only the network is there."""
        return self.settings.model if self.settings else type(self.model).__name__

    @property
    def data_name(self) -> str:
        """The dataset it was trained on; empty if that is not known."""
        return self.settings.data if self.settings else self.preprocessing.data

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.model.parameters()).device

    @property
    def prepare(self) -> data.Prepare:
        """What makes stored images ready for the network."""
        return prepare_of(self.preprocessing)

    def open_images(
        self, name: str, split: str = "test", data_dir: str | None = None
    ) -> data.Images | data.FolderImages:
        """A dataset with the classes that the network was trained on."""
        images: data.Images | data.FolderImages
        if name.startswith("own:"):
            raise ValueError(
                f"the images of {name} were given in Python; pass --data folder:PATH, or give "
                "images to Trained.score"
            )
        if data.is_streamed(name):
            size, crop = self.preprocessing.read_size, self.preprocessing.file_crop
            images = data.open_folder(name, split, data_dir, resize=size, crop=crop or size)
        else:
            images = data.load(name, split, data_dir)
        names = class_names(images)
        if names != self.class_names:
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

    def push_to_hub(
        self, repo_id: str, licence: str = "mit", card: str | None = None, **options: Any
    ) -> str:
        """Upload the network with a card that says how it was trained; returns the address.

        Args:
            repo_id: Name on the Hub, as "user/repo".
            licence: Licence of the weights, as the Hub names it.
            card: A card of one's own, as Markdown.
            **options: Options of the upload: `private`, `commit_message`, `token`, ...
        """
        facts = card_facts(self.settings, self.result) if self.settings else None
        about = {"facts": facts, "licence": licence, "text": card}
        return self.model.push_to_hub(repo_id, model_card_kwargs=about, **options)

    @torch.no_grad()
    def predict(self, paths: Sequence[Path]) -> Iterator[Tensor]:
        """Class probabilities of image files, one vector per file."""
        for start in range(0, len(paths), BATCH):
            part = paths[start : start + BATCH]
            pixels = torch.stack([read_pixels(path, self.preprocessing) for path in part])
            logits = self.model(self.prepare(pixels.to(self.device)))
            if not logits.isfinite().all():
                raise ValueError(f"{OVERFLOW} for {part[0]} or one of the images after it")
            yield from logits.softmax(1).cpu()


def run_folder_of(name: Path | str) -> Path | None:
    """The run folder that a name stands for; None for weights without a run."""
    packaged = find_pretrained(str(name))
    if packaged is not None:
        return packaged
    path = Path(name)
    if (path / SETTINGS).is_file():
        return path
    parent = path.resolve().parent
    inside = path.is_dir() and path.resolve().name == MODEL and (parent / SETTINGS).is_file()
    return parent if inside else None


def known_preprocessing(
    model: ImageClassifier, name: str, data_name: str | None = None
) -> Preprocessing:
    """The preprocessing of a network, with class names; raises an error if it is not known.

    Args:
        model: The network.
        name: Where it comes from, for errors.
        data_name: A dataset whose preprocessing and class names it has, if it does not say.
    """
    stored = model.preprocessing
    unnamed = stored is None or not stored.class_names
    if unnamed and data_name is not None and not data.is_streamed(data_name):
        names = data.info(data_name).class_names
        if stored is None:
            stored = preprocessing_of(data_name, model.img_size[0], names)
        stored = replace(stored, class_names=names)
        model.check_preprocessing(stored)
    if stored is None or not stored.class_names:
        what = "preprocessing (class names, normalisation, image size)"
        raise ValueError(
            f"{CONFIG_FILE} of {name} has no {what if stored is None else 'class names'}; pass "
            "--data, the dataset it was trained on, or the run folder that it comes from, or set "
            "model.preprocessing and save it again"
        )
    return stored


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
    settings = trained.settings
    assert settings is not None
    parts = TEST_PARTS if settings.views else TEST_PARTS[:1]
    scores = {part: trained.score(open_split(settings, part, data_dir)) for part in parts}
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
