"""Write a folder of photos to try `folder:PATH`: python -m clustercaps.data.make_photos PHOTOS.

The first images of eight classes of CIFAR-10, as PNG files of 32x32 pixels in
`PHOTOS/train/CLASS` and `PHOTOS/test/CLASS`. The dataset is downloaded if it is not cached.
"""

import argparse
import sys
from pathlib import Path

from torch import Tensor

from clustercaps.data.datasets import load
from clustercaps.data.errors import need
from clustercaps.utils.errors import at_least

CLASSES = 8


def first_of_class(labels: Tensor, label: int, count: int, skip: int = 0) -> Tensor:
    """Positions of the first images of a class, in ascending order.

    Args:
        labels: labels of all images.
        label: the class.
        count: how many images; fewer if there are not as many.
        skip: how many images of the class to leave out before them.
    """
    return (labels == label).nonzero().flatten()[skip : skip + count]


def write_photos(out: Path, train: int, test: int) -> int:
    """Write this many images of each class; returns how many files were written."""
    pillow = need("PIL.Image", "write image files")
    if out.exists():
        raise ValueError(f"{out} exists; pass a folder that does not")
    written = 0
    for split, count in (("train", train), ("test", test)):
        images = load("cifar10", split)
        for label, name in enumerate(images.meta["class_names"][:CLASSES]):
            folder = out / split / name
            folder.mkdir(parents=True)
            for number in first_of_class(images.labels, label, count).tolist():
                picture = pillow.fromarray(images.pixels[number].permute(1, 2, 0).numpy())
                picture.save(folder / f"{number:05}.png")
                written += 1
    return written


def main(arguments: list[str] | None = None) -> int:
    """Write the folder."""
    parser = argparse.ArgumentParser(description="Write a small folder of photos from CIFAR-10.")
    parser.add_argument("out", type=Path, metavar="PHOTOS", help="folder to write")
    parser.add_argument("--train", type=int, default=150, help="training images of each class")
    parser.add_argument("--test", type=int, default=100, help="test images of each class")
    options = parser.parse_args(arguments)
    out = options.out
    try:
        for name in ("train", "test"):
            at_least(f"--{name}", getattr(options, name), 1)
        written = write_photos(out, options.train, options.test)
    except ValueError as error:
        print(f"make_photos: error: {error}", file=sys.stderr)
        return 2
    print(f"{out}: {written:,} images of {CLASSES} classes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
