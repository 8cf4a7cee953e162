"""Train on images of your own that are a torch Dataset; then test, predict, save and load.

    python examples/own_data.py

draws circles, squares and triangles as the dataset, trains M1 on them, and prints the error on the
test images, the classes of two image files, and whether the loaded network gives the same answer.
The run stays in runs/shapes. With --small it draws few images and trains a small network.

For a folder with one subfolder of images per class, no code is needed:

    clustercaps train m1 --data folder:PATH --out runs/mine
    clustercaps predict runs/mine photo.jpg
"""

import argparse
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch.utils.data import Dataset

import clustercaps as cc


class Shapes(Dataset[tuple[Image.Image, int]]):
    """White shapes of random size and place on a dark ground, and their class.

    Any dataset with a length will do whose items are an image (of Pillow, uint8, or float in 0 to
    1, before normalisation) and the number of its class. It is read once; the library augments and
    normalises.
    """

    classes = ("circle", "square", "triangle")

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.places = torch.randint(8, 24, (count, 2), generator=generator).tolist()
        self.radii = torch.randint(4, 8, (count,), generator=generator).tolist()

    def __len__(self) -> int:
        return len(self.radii)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        (x, y), radius, label = self.places[index], self.radii[index], index % len(self.classes)
        image = Image.new("L", (32, 32), 30)
        draw = ImageDraw.Draw(image)
        if self.classes[label] == "circle":
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=230)
        else:
            sides = 4 if self.classes[label] == "square" else 3
            draw.regular_polygon((x, y, radius), sides, fill=230)
        return image, label


def main() -> None:
    """Train, test, predict, save and load."""
    parser = argparse.ArgumentParser(description="Train on a dataset of one's own.")
    parser.add_argument("--small", action="store_true", help="a few seconds")
    parser.add_argument("--out", type=Path, default=Path("runs/shapes"), help="run folder")
    given = parser.parse_args()
    network = {"channels": 2, "votes": 3, "dim": 4} if given.small else {}
    settings = cc.training.resolve(
        "m1",
        "own:shapes",
        epochs=2 if given.small else 10,
        img_size=32,
        model_settings=network,
    )
    count = 120 if given.small else 1500
    result = cc.training.train(
        settings,
        given.out,
        overwrite=True,
        train=Shapes(count, seed=0),
        test=Shapes(count // 4, seed=1),
    )
    print(f"error: {result['test_error']:.1f} % of {count // 4} test images")

    # A finished run knows its preprocessing and its classes: it reads files of any size.
    trained = cc.training.Trained.open(given.out)
    paths = [given.out / f"new-{number}.png" for number in range(2)]
    for number, path in enumerate(paths):
        Shapes(2, seed=2)[number][0].save(path)
    for path, probabilities in zip(paths, trained.predict(paths), strict=True):
        best = int(probabilities.argmax())
        print(f"{path}: {trained.class_names[best]} ({100 * probabilities[best]:.0f} %)")

    # The network alone, as safetensors and JSON.
    trained.model.save_pretrained(given.out / "copy")
    again = cc.from_pretrained(given.out / "copy")
    image = torch.rand(1, 1, 32, 32)
    print("saved and loaded:", torch.equal(trained.model(image), again(image)))


if __name__ == "__main__":
    main()
