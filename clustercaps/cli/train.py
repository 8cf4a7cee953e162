"""Train a network on a dataset.

    clustercaps train m1 --data fashion-mnist --recipe fast --epochs 30 --out runs/m1
    clustercaps train s4 --data cifar10 --recipe paper --seeds 0,1,2 --out runs/s4
    clustercaps train m1 --set votes=8 --set routing=uniform
    clustercaps train --resume --out runs/m1
    torchrun --nproc-per-node 2 -m clustercaps train m1 --data fashion-mnist

The reported error is that of the last epoch, never of the best. Ctrl-C writes a checkpoint and
prints the command to resume.
"""

import argparse
import dataclasses
import math
import os
import sys
import typing
from pathlib import Path
from typing import Any

from clustercaps.training.settings import (
    RECIPE_NAMES,
    TrainSettings,
    differs_from_published,
    resolve,
)
from clustercaps.utils.interrupts import silent_interrupts
from clustercaps.utils.json_files import parse_json

# Settings without a flag of their own.
SPECIAL = ("model", "data", "recipe", "model_settings")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting, and where to write the run."""
    parser.add_argument("model", nargs="?", help="a name from `clustercaps models`")
    parser.add_argument(
        "--data",
        default="fashion-mnist-mini",
        help="a name from `clustercaps data list`, or folder:PATH (default: %(default)s)",
    )
    parser.add_argument(
        "--recipe",
        choices=list(RECIPE_NAMES),
        help="paper: as in the network's paper; fast: few epochs; strong: lowest error (default: "
        "fast for cluster routing, paper for others)",
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/MODEL-DATA-...)")
    parser.add_argument("--seeds", type=numbers, metavar="0,1,2", help="one run per seed")
    parser.add_argument("--resume", action="store_true", help="resume the run in --out")
    parser.add_argument("--overwrite", action="store_true", help="delete the run in --out first")
    parser.add_argument("--data-dir", help="folder with the official files of the dataset")
    parser.add_argument(
        "--save-every",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="time between checkpoints within an epoch (default: %(default)s)",
    )
    parser.add_argument(
        "--track", choices=["tensorboard", "wandb"], help="also log to this tracker"
    )
    parser.add_argument(
        "--figures",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="draw learning curve, confusion matrix and routing weights after training",
    )
    add_process_arguments(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="argument of the network, for example votes=8; can be repeated",
    )
    add_settings(parser)


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what concerns the processes of a run, not its result."""
    parser.add_argument(
        "--workers", type=int, default=2, help="data loading processes for streamed images"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="several processes: give up when another one has not answered for this long "
        "(default: %(default)s)",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting that has no flag of its own."""
    settings = parser.add_argument_group("settings, which override the recipe")
    hints = typing.get_type_hints(TrainSettings)
    for each in dataclasses.fields(TrainSettings):
        if each.name in SPECIAL:
            continue
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": each.metadata["help"]}
        if hints[each.name] is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= {"type": hints[each.name], "metavar": hints[each.name].__name__.upper()}
        settings.add_argument(f"--{each.name.replace('_', '-')}", **options)


def run(arguments: argparse.Namespace) -> int:
    """Train, draw the figures, print the result."""
    check_tracker(arguments.track)
    # Settings need the networks, and these import torch.
    with silent_interrupts():
        settings = chosen_settings(arguments)
    out = arguments.out or Path("runs") / (
        f"{settings.model}-{settings.data.replace('/', '_').replace(':', '_')}-{settings.recipe}"
        f"-{settings.epochs}" + ("" if arguments.seeds else f"-seed{settings.seed}")
    )
    with silent_interrupts():
        from clustercaps.training import train, train_seeds
        from clustercaps.training.processes import is_first_here
        from clustercaps.training.reporting import say
        from clustercaps.training.signals import Stopped

    difference = differs_from_published(settings)
    if difference and os.environ.get("RANK", "0") == "0":
        say(f"clustercaps: note: {difference}", sys.stderr)
    options = {
        "resume": arguments.resume,
        "overwrite": arguments.overwrite,
        "data_dir": arguments.data_dir,
        "save_every": arguments.save_every,
        "track": arguments.track,
        "workers": arguments.workers,
        "timeout": arguments.timeout,
    }
    try:
        if arguments.seeds:
            summary = train_seeds(settings, arguments.seeds, out, **options)
            spread = "" if summary["sd"] is None else f" +- {summary['sd']:.2f}"
            say(
                f"{settings.model} on {settings.data}: {summary['split']} error "
                f"{summary['mean']:.2f}{spread} % over seeds {summary['seeds']}, in {out}"
            )
            return 0
        result = train(settings, out, **options)
    except Stopped as stopped:
        if is_first_here():
            say(f"clustercaps: {stopped}")
        return stopped.exit_code
    report(out, result, arguments.figures, arguments.data_dir)
    return 0


def chosen_settings(arguments: argparse.Namespace) -> TrainSettings:
    """The recipe with the flags applied, or the stored settings when only resuming."""
    given = {
        each.name: getattr(arguments, each.name)
        for each in dataclasses.fields(TrainSettings)
        if each.name not in SPECIAL and hasattr(arguments, each.name)
    }
    if arguments.model is None:
        return stored_settings(arguments, given)
    pairs = [text.partition("=") for text in arguments.set]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"--set expects NAME=VALUE, got {name!r}")
    network = {name: plain(value) for name, _, value in pairs}
    return resolve(
        arguments.model, arguments.data, arguments.recipe, model_settings=network, **given
    )


def stored_settings(arguments: argparse.Namespace, given: dict[str, Any]) -> TrainSettings:
    """The settings of the run in --out, for `train --resume --out RUN`."""
    if not arguments.resume or arguments.out is None:
        raise ValueError("name a model, for example `clustercaps train m1`, or --resume --out RUN")
    from clustercaps.training.run_folder import RunFolder

    stored = RunFolder(arguments.out).settings
    if stored is None:
        raise ValueError(f"{arguments.out} contains no run to resume")
    return dataclasses.replace(stored, **given)


def check_tracker(name: str | None) -> None:
    """Raise an error for a tracker that is not installed, before any work starts."""
    if name is not None:
        from importlib.util import find_spec

        if find_spec(name) is None:
            raise ImportError(f"--track {name} requires {name}: pip install {name}")


def plain(text: str) -> Any:
    """A value parsed as JSON, or the text itself."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not math.isfinite(number):
        raise ValueError(f"--set expects finite numbers, got {text}")
    try:
        return parse_json(text, "the value")
    except ValueError:
        return text


def numbers(text: str) -> list[int]:
    """Integers separated by commas."""
    return [int(part) for part in text.split(",")]


def report(
    out: Path, result: dict[str, Any], figures: bool = True, data_dir: str | None = None
) -> None:
    """Print the result of a finished run and draw its figures, in the main process only."""
    from accelerate import PartialState

    from clustercaps.training.figures import draw_run
    from clustercaps.training.reporting import say

    if not PartialState().is_main_process:
        return
    say(
        f"{result['model']} on {result['data']}: {result['split']} error "
        f"{result['test_error']:.2f} % ({result['test_errors']:,} of {result['test_images']:,} "
        f"images) after epoch {result['epochs']}, {result['parameters']:,} parameters, "
        f"{result['train_seconds']:.0f} s of training"
    )
    for path in draw_run(out, data_dir) if figures else []:
        say(f"  {path}")
