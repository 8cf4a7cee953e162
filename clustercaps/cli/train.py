"""Train a network on a dataset.

    clustercaps train m1 --data folder:photos
    clustercaps train m1 --data fashion-mnist --recipe fast --epochs 30 --out runs/m1
    clustercaps train s4 --data cifar10 --recipe paper --seeds 0,1,2 --out runs/s4
    clustercaps train m1 --set votes=8 --set routing=uniform
    clustercaps train --resume --out runs/m1
    clustercaps train --config runs/m1/settings.json --seed 1
    torchrun --nproc-per-node 2 -m clustercaps train m1 --data fashion-mnist

The reported error is that of the last epoch, never of the best. Ctrl-C writes a checkpoint and
prints the command to resume.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clustercaps.cli.json_output import add_json, json_document
from clustercaps.cli.settings_arguments import (
    add_network,
    add_settings,
    chosen_settings,
    given_settings,
)
from clustercaps.training.settings import TrainSettings, differs_from_published
from clustercaps.utils.interrupts import silent_interrupts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting, and where to write the run."""
    add_network(parser)
    parser.add_argument("--out", type=Path, help="run folder (default: runs/MODEL-DATA-...)")
    parser.add_argument("--seeds", type=numbers, metavar="0,1,2", help="one run per seed")
    parser.add_argument("--resume", action="store_true", help="resume the run in --out")
    parser.add_argument("--overwrite", action="store_true", help="delete the run in --out first")
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
    add_json(parser)
    add_process_arguments(parser)
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


def run(arguments: argparse.Namespace) -> int:
    """Train, draw the figures, print the result."""
    with json_document(arguments.json) as write:
        return train_and_report(arguments, write)


def train_and_report(arguments: argparse.Namespace, write: Callable[[Any], None]) -> int:
    """Train; `write` gets the result."""
    check_tracker(arguments.track)
    # Settings need the networks, and these import torch.
    with silent_interrupts():
        settings = wanted_settings(arguments)
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
    names = ("resume", "overwrite", "data_dir", "save_every", "track", "workers", "timeout")
    options = {name: getattr(arguments, name) for name in names}
    try:
        if arguments.seeds:
            summary = train_seeds(settings, arguments.seeds, out, **options)
            spread = "" if summary["sd"] is None else f" +- {summary['sd']:.2f}"
            say(
                f"{settings.model} on {settings.data}: {summary['split']} error "
                f"{summary['mean']:.2f}{spread} % over seeds {summary['seeds']}, in {out}"
            )
            write({**summary, "out": str(out)})
            return 0
        result = train(settings, out, **options)
    except Stopped as stopped:
        if is_first_here():
            say(f"clustercaps: {stopped}")
        return stopped.exit_code
    figures = report(out, result, arguments.figures, arguments.data_dir)
    if os.environ.get("RANK", "0") == "0":
        write({**result, "out": str(out), "figures": [str(path) for path in figures]})
    return 0


def wanted_settings(arguments: argparse.Namespace) -> TrainSettings:
    """The chosen settings, or those of the run in --out for `train --resume --out RUN`."""
    if arguments.model is not None or arguments.config is not None or not arguments.resume:
        return chosen_settings(arguments)
    if arguments.out is None:
        raise ValueError("--resume needs a model, or --out RUN")
    from clustercaps.training.run_folder import RunFolder

    stored = RunFolder(arguments.out).settings
    if stored is None:
        raise ValueError(f"{arguments.out} contains no run to resume")
    changes = given_settings(arguments)
    if arguments.data is not None:
        changes["data"] = arguments.data
    return dataclasses.replace(stored, **changes)


def check_tracker(name: str | None) -> None:
    """Raise an error for a tracker that is not installed, before any work starts."""
    if name is not None:
        from importlib.util import find_spec

        if find_spec(name) is None:
            raise ImportError(f"--track {name} requires {name}: pip install {name}")


def numbers(text: str) -> list[int]:
    """Integers separated by commas."""
    return [int(part) for part in text.split(",")]


def report(
    out: Path, result: dict[str, Any], figures: bool = True, data_dir: str | None = None
) -> list[Path]:
    """Print the result of a finished run and draw its figures, in the main process only."""
    from accelerate import PartialState

    from clustercaps.training.figures import draw_run
    from clustercaps.training.reporting import say

    if not PartialState().is_main_process:
        return []
    say(
        f"{result['model']} on {result['data']}: {result['split']} error "
        f"{result['test_error']:.2f} % ({result['test_errors']:,} of {result['test_images']:,} "
        f"images) after epoch {result['epochs']}{stopped_early(result)}, "
        f"{result['parameters']:,} parameters, "
        f"{result['train_seconds']:.0f} s of training"
    )
    drawn = draw_run(out, data_dir) if figures else []
    for path in drawn:
        say(f"  {path}")
    return drawn


def stopped_early(result: dict[str, Any]) -> str:
    """A remark if a run ended before its last epoch."""
    planned = result.get("planned_epochs", result["epochs"])
    if result["epochs"] == planned:
        return ""
    return (
        f" of {planned} (stopped early: no lower validation error for {result['early_stop']} "
        "epochs)"
    )
