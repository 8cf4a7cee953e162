"""Images given in Python."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from clustercaps.data import DataError, as_images
from clustercaps.data.arrays import fitted

PIXELS = torch.randint(0, 256, (4, 3, 8, 10), dtype=torch.uint8)
LABELS = [0, 1, 1, 2]


@pytest.mark.parametrize(
    "images",
    [
        PIXELS,
        PIXELS.permute(0, 2, 3, 1),
        PIXELS.numpy(),
        PIXELS.permute(0, 2, 3, 1).numpy(),
        PIXELS.float() / 255,
        (PIXELS.double() / 255).numpy(),
    ],
)
def test_every_layout_and_type_gives_the_same_images(images):
    found = as_images((images, LABELS), "train")
    assert torch.equal(found.pixels, PIXELS)
    assert found.labels.tolist() == LABELS
    assert found.meta["class_names"] == ("0", "1", "2")


def test_grey_images_may_have_no_channel_axis():
    grey = as_images((PIXELS[:, 0], np.array(LABELS, dtype=np.uint8)), "train", ("a", "b", "c"))
    assert grey.pixels.shape == (4, 1, 8, 10)
    assert grey.meta["class_names"] == ("a", "b", "c")


class Pictures(Dataset):
    classes = ("ant", "bee", "cow", "dog")

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return Image.fromarray(PIXELS[index].permute(1, 2, 0).numpy()), LABELS[index]


def test_datasets_of_tensors_and_of_pictures():
    found = as_images(Pictures(), "train")
    assert torch.equal(found.pixels, PIXELS)
    assert found.meta["class_names"] == Pictures.classes
    tensors = as_images(TensorDataset(PIXELS, torch.tensor(LABELS)), "train")
    assert torch.equal(tensors.pixels, PIXELS)


class Uneven(Pictures):
    def __getitem__(self, index):
        return PIXELS[index, :, : 8 - index], 0


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (PIXELS.unbind(), "item 0 must be"),
        (3, r"expected a torch Dataset.*got int"),
        (([1, 2], [0, 1]), "got images of type list"),
        ((PIXELS[0, 0], [0]), r"got images of shape \(8, 10\)"),
        ((torch.zeros(2, 5, 9, 9), [0, 1]), "no axis can be the colour channels"),
        ((torch.zeros(2, 4, 9, 9), [0, 1]), "4 colour channels, expected 1 .grey. or 3"),
        ((PIXELS.long(), LABELS), "got torch.int64; convert them"),
        ((PIXELS.float(), LABELS), "must be in 0 to 1, got 0 to 255|must be in 0 to 1, got"),
        ((PIXELS.float() / 0, LABELS), "must be in 0 to 1"),
        ((PIXELS, LABELS[:3]), "4 images, but 3 labels"),
        ((PIXELS, [0.5, 1, 1, 2]), "labels must be integers"),
        ((PIXELS, ["a", "b", "a", "b"]), "labels must be integers"),
        ((PIXELS, [0, -1, 1, 2]), "labels must be 0 or more, got -1"),
        ((PIXELS[:0], []), "labels must be integers|has no images"),
        (Uneven(), r"item 1 has shape \(3, 7, 10\), the first \(3, 8, 10\)"),
    ],
)
def test_everything_else_is_refused(given, complaint):
    with pytest.raises(DataError, match=f"train.*({complaint})"):
        as_images(given, "train")


def test_labels_must_be_classes():
    with pytest.raises(DataError, match="label 2, but there are only 2 classes"):
        as_images((PIXELS, LABELS), "test", ("a", "b"))


def test_fitted_like_a_folder():
    images = as_images((torch.full((1, 3, 40, 30), 7, dtype=torch.uint8), [0]), "train")
    assert fitted(images, 16).pixels.shape == (1, 3, 16, 16)
    assert fitted(images, 16, 12).pixels.shape == (1, 3, 12, 12)
    assert fitted(images, 16).pixels.unique().tolist() == [7]
    square = as_images((PIXELS[..., :8], LABELS), "train")
    assert torch.equal(fitted(square, 8, 5).pixels, square.pixels[..., 1:6, 1:6])
