"""Find a learning rate: train a copy with a rate that rises with every step.

    clustercaps lr-find m1 --data folder:photos
    clustercaps lr-find m1 --data cifar10 --optimizer adamw --figure lr.png

Prints the loss at several rates and suggests a peak learning rate for `train`, whose settings it
takes. Nothing is written, except with --figure or --out.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from clustercaps.cli.json_output import add_json, json_document
from clustercaps.cli.settings_arguments import add_network, add_settings, chosen_settings
from clustercaps.utils.interrupts import silent_interrupts

if TYPE_CHECKING:
    from clustercaps.training.range_test import RangeTest

# Lines of the table.
ROWS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the settings of a run, the range of rates, and what to write."""
    add_network(parser)
    parser.add_argument(
        "--from", dest="low", type=float, help="first rate (default: a thousandth of --to)"
    )
    parser.add_argument(
        "--to", dest="high", type=float, help="last rate (default: 30 times the recipe's)"
    )
    parser.add_argument(
        "--steps", type=int, default=100, help="steps of training (default: %(default)s)"
    )
    parser.add_argument("--figure", type=Path, help="draw loss over rate to this PNG file")
    parser.add_argument("--out", type=Path, help="write rates and losses to this JSON file")
    parser.add_argument(
        "--workers", type=int, default=2, help="data loading processes for streamed images"
    )
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the test and print its table."""
    from clustercaps.utils.paths import output_path

    for path in (arguments.figure, arguments.out):
        if path is not None:
            output_path(path)
    with json_document(arguments.json) as write:
        with silent_interrupts():
            settings = chosen_settings(arguments)
            from clustercaps.training.range_test import range_test
        high = 30 * settings.lr if arguments.high is None else arguments.high
        low = high / 1000 if arguments.low is None else arguments.low
        found = range_test(
            settings, low, high, arguments.steps, arguments.data_dir, arguments.workers
        )
        print_table(found)
        print(
            f"\nlowest loss at {found.lowest:.2g}; suggested: --lr {found.suggestion:.2g} "
            f"(the recipe {settings.recipe!r} has {settings.lr:g})"
        )
        if found.lowest == found.rates[-1]:
            print("the loss was still falling at the last rate: pass a larger --to")
        if arguments.figure is not None:
            from clustercaps.training.figures import range_figure

            print(range_figure(found, arguments.figure))
        document = {"model": settings.model, "data": settings.data, **found.to_plain()}
        if arguments.out is not None:
            from clustercaps.utils.json_files import write_json

            write_json(arguments.out, document)
            print(arguments.out)
        write(document)


def print_table(found: "RangeTest") -> None:
    """Print some of the rates, evenly spaced, and always the one with the lowest loss."""
    from clustercaps.utils.tables import text_table

    last = len(found.rates) - 1
    shown = {round(row * last / (ROWS - 1)) for row in range(ROWS)}
    best = found.rates.index(found.lowest)
    rows = [
        [f"{found.rates[i]:.3g}", f"{found.smoothed[i]:.4f}", "lowest" if i == best else ""]
        for i in sorted(shown | {best})
    ]
    if found.diverged:
        rows[-1][2] = "the loss rises too much: stopped"
    print(text_table(["learning rate", "loss (smoothed)", ""], rows))
