"""Put all results of `clustercaps reproduce` on one page: tables, figures, differences.

clustercaps report
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the results are and where the page goes."""
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder (default: %(default)s)"
    )
    parser.add_argument(
        "--page",
        type=Path,
        default=Path("docs") / "reproduction.md",
        help="the page to write (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Write the page."""
    from clustercaps.experiments.harness.page import write

    if not arguments.results.is_dir():
        raise ValueError(
            f"{arguments.results} is not a folder; `clustercaps reproduce` makes it, or give "
            "--results"
        )
    write(arguments.results, arguments.page)
    print(arguments.page)
