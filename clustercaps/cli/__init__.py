"""The `clustercaps` command: one module per subcommand.

Each module has a docstring (its `--help`), `add_arguments(parser)` and `run(arguments)`. Heavy
imports wait until a command runs.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from clustercaps import __version__

COMMANDS = {
    "models": "list every network with its parameter count and the paper's",
    "data": "list, download, verify and show datasets",
    "train": "train a network on a dataset",
    "evaluate": "test a trained network: error, confusion matrix, errors per class",
    "predict": "classify image files with a trained network",
    "compare": "compare runs: table and learning curves",
    "demo": "train M1 on the built-in dataset and draw figures",
    "reproduce": "reproduce a table or figure of the paper",
    "report": "collect all results of reproduce on one page",
    "explore": "write a page to try out trained capsule networks in the browser",
    "kernels": "show which backends are available, which is used, and why",
    "bench": "measure time, memory and scaling of networks and layers",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input prints one line to stderr and returns exit code 2."""
    arguments = build_parser().parse_args(argv)
    try:
        return arguments.run(arguments) or 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, KeyError, OSError, ImportError) as error:
        if os.environ.get("CLUSTERCAPS_TRACEBACK"):
            raise
        # str() of a KeyError is the repr of its message.
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"clustercaps: error: {message}", file=sys.stderr)
        return 2


def build_parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    parser = argparse.ArgumentParser(
        prog="clustercaps",
        description="Capsule networks for PyTorch: cluster routing and related methods.",
        epilog="Run `clustercaps COMMAND --help` for details. Set CLUSTERCAPS_TRACEBACK=1 to see "
        "the traceback of an error.",
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
