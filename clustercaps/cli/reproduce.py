r"""Reproduce a table or figure of the paper.

    clustercaps reproduce ablation                     a few minutes on two cores
    clustercaps reproduce classification --budget full --cell 'm1/*' --seeds 0
    clustercaps reproduce --list classification --budget full | xargs -d '\n' -P 4 -n 1 sh -c
    clustercaps report                                 all results on one page

Writes NAME-BUDGET.csv, .md, .png and .pdf to results/. Finished cells are not measured again, and
interrupted ones resume. Results from different settings are rejected, never mixed.
"""

import argparse
from pathlib import Path

from clustercaps.experiments import BUDGETS, EXPERIMENTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to measure, with which budget, and where to write it."""
    parser.add_argument(
        "name",
        nargs="?",
        help="; ".join(f"{name}: {summary}" for name, summary in EXPERIMENTS.items()),
    )
    parser.add_argument(
        "--budget",
        choices=list(BUDGETS),
        default="quick",
        help="; ".join(f"{name}: {summary}" for name, summary in BUDGETS.items())
        + " (default: %(default)s)",
    )
    parser.add_argument(
        "--seeds", type=seed_numbers, metavar="0,1,2", help="seeds (default: from the budget)"
    )
    parser.add_argument(
        "--cell",
        action="append",
        default=[],
        metavar="ID",
        help="run only these cells, for example m1/cifar10 or 'm1/*'; can be repeated",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="print one resumable command per cell and seed, for xargs or a job array; "
        "without NAME, for every experiment",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        help="results folder; runs go to its subfolder runs (default: %(default)s)",
    )
    parser.add_argument("--data-dir", help="folder with the official files of the dataset")
    parser.add_argument(
        "--workers", type=int, default=2, help="data loading processes for streamed images"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="discard stored results and runs, and start over"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, or list the commands that would."""
    if arguments.name is None and not arguments.list:
        raise ValueError(f"name an experiment ({', '.join(EXPERIMENTS)}), or pass --list")
    from clustercaps.experiments.harness.runner import Request, commands, reproduce
    from clustercaps.training.signals import Stopped

    def request(name: str) -> Request:
        return Request(
            name,
            arguments.budget,
            arguments.seeds,
            tuple(arguments.cell),
            arguments.out,
            arguments.data_dir,
            arguments.workers,
            arguments.fresh,
        )

    if arguments.list:
        for name in [arguments.name] if arguments.name else EXPERIMENTS:
            print("\n".join(commands(request(name))))
        return 0
    try:
        return reproduce(request(arguments.name))
    except Stopped as stopped:
        print(f"clustercaps: {stopped}; or run the same command again")
        return stopped.exit_code


def seed_numbers(text: str) -> tuple[int, ...]:
    """Non-negative integers separated by commas."""
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 0:
        raise argparse.ArgumentTypeError(f"expected integers such as 0,1,2, got {text!r}")
    return tuple(dict.fromkeys(seeds))
