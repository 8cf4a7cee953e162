"""The `clustercaps` command: one module in `commands/` per word.

A command module has a docstring (its `--help`), `add_arguments(parser)` and `run(arguments)`, and
imports nothing heavy before it runs.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from clustercaps import __version__

COMMANDS = {
    "models": "list every network, its parameters, and what the paper prints",
    "data": "list image sets, get them, check their files, look at them",
    "train": "train a network on an image set",
    "evaluate": "test a trained network: error, confusion, per class",
    "predict": "classify image files with a trained network",
    "compare": "put runs side by side: table and learning curves",
    "demo": "train M1 on images inside the package and draw what it learnt",
    "reproduce": "make a table or figure of the paper anew",
    "report": "put all results of reproduce on one page",
    "kernels": "show which fast paths there are, which is used, and why not the others",
    "bench": "time networks and layers, measure their memory, see how cost grows",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends in one line on stderr and exit code 2."""
    arguments = build_parser().parse_args(argv)
    try:
        return arguments.run(arguments) or 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, KeyError, OSError, ImportError) as error:
        if os.environ.get("CLUSTERCAPS_TRACEBACK"):
            raise
        # A KeyError's own text is the repr of its message.
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"clustercaps: error: {message}", file=sys.stderr)
        return 2


def build_parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    parser = argparse.ArgumentParser(
        prog="clustercaps",
        description="Capsule networks for PyTorch: cluster routing and its relatives.",
        epilog="`clustercaps COMMAND --help` explains a command. CLUSTERCAPS_TRACEBACK=1 shows "
        "where an error came from.",
    )
    parser.add_argument("--version", action="version", version=f"clustercaps {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = import_module(f"clustercaps.cli.{name}")
        command = commands.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
