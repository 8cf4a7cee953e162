"""Put the weights of a finished run into the package: python -m clustercaps.training.package RUN.

Copies settings, result and network of the run to `clustercaps/models/weights/MODEL-DATA`, writes
a model card, and tests the network on a few images that are stored there for this purpose.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from clustercaps import data
from clustercaps.models.packaged import WEIGHTS
from clustercaps.training.batches import balanced
from clustercaps.training.finished import Trained
from clustercaps.training.run_folder import MODEL, RESULT, SETTINGS, RunFolder
from clustercaps.training.settings import resolve
from clustercaps.utils.files import remove_unfinished, write_atomically
from clustercaps.utils.json_files import write_json
from clustercaps.utils.tensor_files import write_tensors

# Test images of each dataset that are stored next to the weights.
CHECK_IMAGES = 200

CARD = """\
# {model} on {data}

Weights of the `clustercaps` library.

| | |
|---|---|
| network | `{model}`, {parameters:,} parameters |
| dataset | {data}, {train_images:,} training images |
| test error | **{test_error:.2f} %** of {test_images:,} test images, weights: {weights} |
| recipe | `{recipe}`, {epochs} epochs, seed {seed}, {train_seconds:.0f} s of training |
| machine | {machine}, torch {torch}, clustercaps {clustercaps} at commit {commit} |
| licence | MIT, as the library; the dataset has its own |

```python
import clustercaps as cc

model = cc.create_model("{model}", pretrained="{data}")
```

To reproduce the weights:

```
{command}
```
"""


def command_of(run: RunFolder) -> str:
    """The command that reproduces a run."""
    settings = run.settings
    assert settings is not None
    usual = resolve(settings.model, settings.data, settings.recipe)
    words = [f"clustercaps train {settings.model} --data {settings.data}"]
    words.append(f"--recipe {settings.recipe} --seed {settings.seed}")
    for name, value in vars(replace(settings, test_every=usual.test_every)).items():
        if value != getattr(usual, name) and name not in ("seed", "model_settings"):
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{'' if value else 'no-'}{flag}")
            else:
                words.append(f"--{flag} {value}")
    words += [f"--set {name}={value}" for name, value in settings.model_settings.items()]
    return " ".join(words)


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
    write_atomically(folder / MODEL / "README.md", CARD.format(**result, command=command_of(run)))
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
