"""Show how capsule layers are computed here: what is available, what is used, why not the others.

    clustercaps kernels

Builds the CPU kernel if it is not there yet. CLUSTERCAPS_BACKEND=reference forces a path, and so
does the argument `backend` of a layer.
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    from clustercaps.kernels import status_table

    print(status_table())
