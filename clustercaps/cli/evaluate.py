"""Test a trained network on a dataset.

    clustercaps evaluate runs/m1
    clustercaps evaluate m1:fashion-mnist
    clustercaps evaluate runs/m1 --data fashion-mnist --device cpu

Prints error, top-5 error and a table of errors per class, and draws the confusion matrix.
"""

import argparse
import re
from pathlib import Path
from typing import Any

from clustercaps.cli.json_output import add_json, json_document
from clustercaps.utils.extras import require
from clustercaps.utils.interrupts import silent_interrupts


def add_run(parser: argparse.ArgumentParser, device: bool = True) -> None:
    """Add the network to use and, with `device`, where to compute; also for `predict`."""
    parser.add_argument(
        "run_name",
        metavar="RUN",
        help="folder of a finished run or of save_pretrained, packaged weights such as "
        "m1:fashion-mnist, or a model on the Hugging Face Hub as user/repo",
    )
    if device:
        parser.add_argument(
            "--device",
            default="auto",
            help="auto (the accelerator if there is one), cpu, cuda, cuda:1, mps, ... "
            "(default: %(default)s)",
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run and what to test it on."""
    add_run(parser)
    parser.add_argument("--data", help="dataset (default: the one the run was trained on)")
    parser.add_argument("--split", choices=["test", "train"], default="test")
    parser.add_argument("--data-dir", help="folder with the official files of the dataset")
    parser.add_argument("--figure", type=Path, help="confusion matrix file (default: in RUN)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Test and report."""
    with json_document(arguments.json) as write:
        write(evaluate(arguments))


def evaluate(arguments: argparse.Namespace) -> dict[str, Any]:
    """Test, print the tables and draw the figure; returns what was measured."""
    require("train", "figures")
    with silent_interrupts():
        from clustercaps.training.figures import confusion_figure
        from clustercaps.training.finished import Trained
    from clustercaps.utils.paths import output_path
    from clustercaps.utils.tables import printable, text_table

    trained = Trained.open(arguments.run_name, arguments.device, arguments.data)
    name = arguments.data or trained.data_name
    if not name:
        raise ValueError(
            f"{arguments.run_name} does not say on which dataset it was trained; pass --data"
        )
    safe_name = name.replace("/", "_").replace(":", "_")
    run = Path(arguments.run_name)
    # Figures do not go next to packaged or downloaded weights.
    place = run if run.is_dir() else Path(re.sub("[:/@]", "-", arguments.run_name))
    figure = arguments.figure or place / f"confusion-{safe_name}-{arguments.split}.png"
    output_path(figure)
    score = trained.score(trained.open_images(name, arguments.split, arguments.data_dir))
    print(
        f"{trained.title} from {printable(arguments.run_name)} on {printable(name)} "
        f"{arguments.split}: error "
        f"{score.error:.2f} % ({score.errors:,} of {score.total:,} images), top-5 error "
        f"{score.top5_error:.2f} %, loss {score.loss:.4f}\n"
    )
    rows = []
    for label, class_name in enumerate(trained.class_names):
        row = score.confusion[label]
        others = row.clone()
        others[label] = 0
        worst = int(others.argmax())
        taken = f"{trained.class_names[worst]} ({int(others[worst])})" if others.any() else "-"
        wrong, total = int(others.sum()), int(row.sum())
        share = f"{100 * wrong / total:.2f}" if total else "-"
        rows.append([class_name, f"{total:,}", f"{wrong:,}", share, taken])
    print(text_table(["class", "images", "errors", "error %", "most often confused with"], rows))
    path = confusion_figure(score, trained.class_names, figure)
    print(f"\n{printable(str(path))}")
    return {
        **{"run": arguments.run_name, "model": trained.title},
        **{"data": name, "split": arguments.split},
        **{"error": score.error, "top5_error": score.top5_error, "loss": score.loss},
        **{"errors": score.errors, "images": score.total},
        **{"class_names": list(trained.class_names), "confusion": score.confusion.tolist()},
        "figure": str(path),
    }
