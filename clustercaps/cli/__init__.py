"""The `clustercaps` command: one module per subcommand.

Each module has a docstring (its `--help`), `add_arguments(parser)` and `run(arguments)`. Heavy
imports wait until a command runs.
"""

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from clustercaps import __version__
from clustercaps.utils.extras import naming_extra

COMMANDS = {
    "models": "list every network with its parameter count and the paper's",
    "data": "list, download, verify and show datasets",
    "train": "train a network on a dataset",
    "lr-find": "find a learning rate for a network and a dataset",
    "evaluate": "test a trained network: error, confusion matrix, errors per class",
    "predict": "classify image files with a trained network",
    "export": "write a trained network as ONNX, torch.export or AOTInductor file",
    "push": "upload a trained network to the Hugging Face Hub",
    "compare": "compare runs: table and learning curves",
    "demo": "train M1 on the built-in dataset and draw figures",
    "reproduce": "reproduce a table or figure of the paper",
    "report": "collect all results of reproduce on one page",
    "explore": "write a page to try out trained capsule networks in the browser",
    "completion": "print a script that completes commands in bash, zsh or fish",
    "kernels": "show which backends are available, which is used, and why",
    "bench": "measure time, memory and scaling of networks and layers",
}

FIRST_STEPS = """Start with one of these:
  clustercaps models                        every network
  clustercaps explore                       trained networks in the browser
  clustercaps demo                          train a small network, some minutes
  clustercaps train m1 --data folder:PATH   train on your own images"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input prints one line to stderr and returns exit code 2.

    A mistake of this package prints one line, too, and returns 1.
    """
    parser = build_parser()
    given = sys.argv[1:] if argv is None else argv
    overview = argparse.Namespace(
        run=lambda _: print(parser.format_help(), FIRST_STEPS, sep="\n", flush=True)
    )
    arguments = parser.parse_args(given) if given else overview
    # Remarks on oddities of image files; what cannot be read is an error.
    warnings.filterwarnings("ignore", module=r"PIL\b")
    try:
        with naming_extra():
            return arguments.run(arguments) or 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    # The last resort of every command: one line, and how to see the traceback.
    except Exception as error:
        if os.environ.get("CLUSTERCAPS_TRACEBACK"):
            raise
        line, code = explain(error)
        print(f"clustercaps: {line}", file=sys.stderr)
        return code


def explain(error: Exception) -> tuple[str, int]:
    """What to print for an error, and the exit code: 2 for bad input, 1 for our mistakes."""
    message = str(error)
    # On the CPU and on a GPU.
    no_memory = "can't allocate memory" in message or "out of memory" in message
    if isinstance(error, MemoryError) or no_memory:
        return "error: not enough memory; use a smaller network, batch or dataset", 2
    if isinstance(error, KeyError):
        # str() of a KeyError is the repr of its message. A key alone is no message: a dictionary
        # was asked for something that it does not have.
        message = str(error.args[0]) if error.args and " " in str(error.args[0]) else ""
    if isinstance(error, ValueError | KeyError | OSError | ImportError) and message:
        return f"error: {message}", 2
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = (str(error).strip().splitlines() or ["no message"])[0][:200]
    return (
        f"unexpected error: {type(error).__name__}: {said} ({Path(place.filename).name}, line "
        f"{place.lineno}). This is a mistake in clustercaps: set CLUSTERCAPS_TRACEBACK=1 to see "
        "the traceback, and report it with the command"
    ), 1


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
        module = import_module(f"clustercaps.cli.{name.replace('-', '_')}")
        command = commands.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
