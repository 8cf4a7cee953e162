"""Show which backends for capsule layers are available, which one is used, and why.

    clustercaps kernels

Builds the CPU kernel if necessary. To force a backend, set CLUSTERCAPS_BACKEND=reference or pass
`backend` to a layer.
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    from clustercaps.kernels import choose, status_table
    from clustercaps.kernels.library import thread_advice

    print(status_table())
    advice = thread_advice() if choose("auto", "cpu") == "cpu" else ""
    if advice:
        print(advice)
