"""Collect all results of `clustercaps reproduce` on one page: tables, figures, findings.

clustercaps report
clustercaps report --figures  draw the figures of stored results again, too
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the results are and where to write the page."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        help="results folder (default: %(default)s)",
    )
    parser.add_argument(
        "--page",
        type=Path,
        default=Path("docs") / "reproduction.md",
        help="page to write (default: %(default)s)",
    )
    parser.add_argument(
        "--figures", action="store_true", help="draw the figures of stored results again, too"
    )


def run(arguments: argparse.Namespace) -> None:
    """Write the page."""
    from clustercaps.experiments.harness.page import write
    from clustercaps.utils.paths import output_path

    if not arguments.results.is_dir():
        raise ValueError(
            f"{arguments.results} is not a folder; run `clustercaps reproduce` first, or pass "
            "--results"
        )
    output_path(arguments.page)
    write(arguments.results, arguments.page, arguments.figures)
    print(arguments.page)
