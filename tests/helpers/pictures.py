"""Folders of small pictures."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_pictures(folder: Path, count: int, seed: int = 0) -> Path:
    """`count` dark and as many light pictures, in a subfolder each."""
    chance = np.random.default_rng(seed)
    for label, name in enumerate(("dark", "light")):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = chance.integers(0, 100, (20, 30, 3)) + 150 * label
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder
