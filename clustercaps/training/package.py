"""Put the weights of a finished run into the package: python -m clustercaps.training.package RUN.

Copies settings, result and network of the run to `clustercaps/models/weights/MODEL-DATA`, writes
a model card, and tests the network on a few images that are stored there for this purpose.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from clustercaps import data
from clustercaps.models.card import model_card
from clustercaps.models.packaged import WEIGHTS
from clustercaps.models.pretrained import CARD_FILE
from clustercaps.training.batches import balanced
from clustercaps.training.card import card_facts
from clustercaps.training.finished import Trained
from clustercaps.training.run_folder import MODEL, RESULT, SETTINGS, RunFolder
from clustercaps.utils.files import remove_unfinished, write_atomically
from clustercaps.utils.json_files import write_json
from clustercaps.utils.tensor_files import write_tensors

# Test images of each dataset that are stored next to the weights.
CHECK_IMAGES = 200


def check_images(name: str) -> dict[str, Tensor]:
    """Pixels and labels of the stored test images of a dataset, selected on first use."""
    path = WEIGHTS / f"{name}.safetensors"
    if not path.exists():
        images = data.load(name, "test")
        chosen = images.subset(balanced(images.labels, CHECK_IMAGES))
        write_tensors(path, {"pixels": chosen.pixels, "labels": chosen.labels})
    return load_file(path)


@torch.no_grad()
def count_errors(trained: Trained, images: dict[str, Tensor]) -> int:
    """Number of stored test images that a network misclassifies."""
    prepared = trained.prepare(images["pixels"])
    return int((trained.model.eval()(prepared).argmax(1) != images["labels"]).sum())


def package(path: Path, half: bool = False) -> Path:
    """Add the weights of a finished run; `half` stores them in 16 bits."""
    run, trained = RunFolder(path), Trained.open(path)
    result: dict[str, Any] = dict(run.result or {})
    if result["split"] != "test":
        raise ValueError(f"{path} is a run with --validate; package a run without it")
    folder = WEIGHTS / f"{result['model']}-{result['data']}"
    folder.mkdir(parents=True, exist_ok=True)
    for place in (WEIGHTS, folder):
        remove_unfinished(place)
    if half:
        trained.model.half()
    trained.model.save_pretrained(folder / MODEL)
    kept = Trained(trained.model.float(), trained.settings)
    images = check_images(result["data"])
    result |= {"check_errors": count_errors(kept, images), "check_images": len(images["labels"])}
    assert trained.settings is not None
    name = f"{result['model']}:{result['data']}"
    card = model_card(kept.model, card_facts(trained.settings, result), name)
    write_atomically(folder / MODEL / CARD_FILE, str(card))
    write_atomically(folder / SETTINGS, (path / SETTINGS).read_text(encoding="utf-8"))
    write_json(folder / RESULT, result)
    return folder


def main(arguments: list[str] | None = None) -> int:
    """Package the given runs."""
    parser = argparse.ArgumentParser(description="Put weights of finished runs into the package.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--half", action="store_true", help="store 16-bit weights")
    options = parser.parse_args(arguments)
    for run in options.runs:
        print(package(run, options.half))
    return 0


if __name__ == "__main__":
    sys.exit(main())
