"""Classify image files with a trained network.

    clustercaps predict runs/m1 shoe.png 'photos/*.jpg' folder/
    clustercaps predict m1:fashion-mnist shoe.png
    clustercaps predict user/repo shoe.png
    clustercaps predict m1.onnx shoe.png  # what `clustercaps export` wrote

Images of any size are resized to the input size of the network.
"""

import argparse
from pathlib import Path
from typing import Any

from clustercaps.cli.evaluate import add_run
from clustercaps.cli.json_output import add_json, json_document
from clustercaps.utils.extras import require
from clustercaps.utils.interrupts import silent_interrupts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run and the images."""
    add_run(parser)
    parser.add_argument("images", nargs="+", help="image files, folders or quoted glob patterns")
    parser.add_argument(
        "--data",
        help="dataset whose class names and preprocessing to use, for networks that were saved "
        "without them",
    )
    parser.add_argument(
        "--top", type=int, default=3, help="classes to print per image (default: %(default)s)"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the most likely classes of each image."""
    with json_document(arguments.json) as write:
        write(predict(arguments))


def predict(arguments: argparse.Namespace) -> dict[str, Any]:
    """Print the table; returns the same as a document."""
    from clustercaps.export.reading import is_exported
    from clustercaps.utils.errors import at_least
    from clustercaps.utils.image_files import find_images
    from clustercaps.utils.progress import with_bar
    from clustercaps.utils.tables import text_table

    at_least("--top", arguments.top, 1)
    if not is_exported(arguments.run_name):
        require("train")
    paths = find_images(arguments.images)
    network = open_network(arguments)
    names = network.class_names
    top = min(arguments.top, len(names))
    rows, images = [], []
    predictions = zip(with_bar(paths, "predicting"), network.predict(paths), strict=True)
    for path, probabilities in predictions:
        ranked = zip(names, probabilities.tolist(), strict=True)
        likely = sorted(ranked, key=lambda each: -each[1])[:top]
        rows.append([str(path), *(f"{name} {100 * share:.1f} %" for name, share in likely)])
        images.append(
            {"file": str(path), "classes": [{"name": n, "probability": p} for n, p in likely]}
        )
    print(text_table(["image", *(f"{place}." for place in range(1, top + 1))], rows))
    return {"run": arguments.run_name, "images": images}


def open_network(arguments: argparse.Namespace) -> Any:
    """A trained network, or one that was exported; ONNX files do not import torch."""
    from clustercaps.export.reading import is_exported, open_exported

    if is_exported(arguments.run_name):
        if arguments.device not in ("auto", "cpu") or arguments.data is not None:
            raise ValueError(
                f"{arguments.run_name} runs on the CPU, with its own class names and "
                "preprocessing; remove --device and --data"
            )
        return open_exported(Path(arguments.run_name))
    with silent_interrupts():
        from clustercaps.training.finished import Trained
    return Trained.open(arguments.run_name, arguments.device, arguments.data)
