"""The `clustercaps` command. Nothing heavy is imported before a command runs."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from clustercaps import __version__

Command = Callable[[argparse.Namespace], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends in one line on stderr and exit code 2."""
    arguments = build_parser().parse_args(argv)
    try:
        arguments.run(arguments)
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
    return 0


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

    add(
        commands,
        "models",
        models,
        "list every network, its parameters, and what the paper prints",
    )

    demo_parser = add(
        commands, "demo", demo, "route real images through M1 and draw what the routing does"
    )
    demo_parser.add_argument(
        "--out", type=Path, default=Path("demo"), help="folder for the figure (default: demo)"
    )
    return parser


def add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Command,
    summary: str,
) -> argparse.ArgumentParser:
    """A command with its one-line summary; the docstring of `run` is its `--help`."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=run.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def models(arguments: argparse.Namespace) -> None:
    """Every registered network with its parameters.

    The paper's printed count stands in brackets; a mark says that it does not fit the network.
    """
    from clustercaps import parameters
    from clustercaps.models import get_preset
    from clustercaps.tables import text_table

    rows = [
        [name, *(str(cell) for cell in cells.values()), get_preset(name).summary]
        for name, cells in parameters.classifier_table().items()
    ]
    print("Classifiers: parameters on each data set (in brackets: as the paper prints them)\n")
    print(text_table(["model", *parameters.TASKS, "what it is"], rows))
    others = [
        [name, str(cell), get_preset(name).summary]
        for name, cell in parameters.other_networks().items()
    ]
    print("\nOther networks, with their default settings\n")
    print(text_table(["model", "parameters", "what it is"], others))
    print()
    for mark, note in parameters.NOTES.items():
        print(f"{mark} {note}")
    print("  The paper calls affine_capsules C4K4D32; only C4 K8 D4 gives the counts it prints.")


def demo(arguments: argparse.Namespace) -> None:
    """Cluster routing at work: M1 with fresh weights on real Fashion-MNIST images.

    Writes a figure with the capsules and the routing weights of its second layer.
    """
    import torch

    from clustercaps import data
    from clustercaps.figures import routing_figure
    from clustercaps.models import create_model

    torch.manual_seed(0)
    images = data.load("fashion-mnist-mini", "test")
    first_of_each = [int((images.labels == c).nonzero()[0]) for c in range(6)]
    pixels = data.test_transform("fashion-mnist-mini")(images.pixels[first_of_each])
    model = create_model("m1", num_classes=10, in_chans=1, img_size=32).eval()
    print(model)
    path = routing_figure(model, pixels, arguments.out / "routing.png")
    print(f"figure: {path}")
