"""`--json`: one JSON document on stdout, everything else on stderr."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from clustercaps.utils.json_files import json_text


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document on stdout, and everything else on stderr",
    )


@contextlib.contextmanager
def json_document(asked: bool) -> Iterator[Callable[[Any], None]]:
    """What is printed inside goes to stderr, and the document that is passed on to stdout.

    Args:
        asked: Whether `--json` was given; otherwise nothing changes, and the document is dropped.
    """
    documents: list[Any] = []
    with contextlib.redirect_stdout(sys.stderr) if asked else contextlib.nullcontext():
        yield documents.append
    if asked:
        for document in documents:
            print(json_text(document, indent=2), flush=True)
