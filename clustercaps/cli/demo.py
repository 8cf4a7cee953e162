"""Train M1 on the built-in Fashion-MNIST images and draw figures.

The run is written to demo/. Run again, the command resumes it, or shows the finished run.
"""

import argparse
from pathlib import Path

from clustercaps.utils.interrupts import silent_interrupts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where to write the run and how long to train."""
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), help="run folder (default: %(default)s)"
    )
    parser.add_argument("--epochs", type=int, help="epochs (default: from the fast recipe)")
    parser.add_argument("--limit", type=int, default=0, help="train on this many images only")
    parser.add_argument("--fresh", action="store_true", help="start over")


def run(arguments: argparse.Namespace) -> int:
    """Train and report."""
    with silent_interrupts():
        from clustercaps.cli.train import report
        from clustercaps.training import train
        from clustercaps.training.reporting import say
        from clustercaps.training.settings import resolve
        from clustercaps.training.signals import Stopped

    changes = {"limit": arguments.limit}
    if arguments.epochs is not None:
        changes["epochs"] = arguments.epochs
    settings = resolve("m1", "fashion-mnist-mini", "fast", **changes)
    images = f"{arguments.limit or 10_000:,}"
    say(f"M1, a capsule network with cluster routing, on {images} images of Fashion-MNIST")
    try:
        result = train(
            settings, arguments.out, resume=not arguments.fresh, overwrite=arguments.fresh
        )
    except Stopped as stopped:
        say(f"clustercaps: {stopped}")
        return stopped.exit_code
    report(arguments.out, result)
    say(f"Try: clustercaps evaluate {arguments.out}")
    return 0
