"""List, download, verify and show datasets.

clustercaps data list
clustercaps data get cifar10
clustercaps data check smallnorb --data-dir ~/norb
clustercaps data show rendered-norb --out objects.png
"""

import argparse
from pathlib import Path

from clustercaps.cli.json_output import add_json, json_document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `list`, and `get`, `check` and `show` with a dataset name."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    listed = actions.add_parser(
        "list", help="list every dataset with its size and whether it is available"
    )
    add_json(listed)
    for action, summary in {
        "get": "download a dataset into the cache, from any available source, or render it",
        "check": "verify the files of a dataset without downloading anything",
        "show": "draw some images of every class to a PNG file",
    }.items():
        sub = actions.add_parser(action, help=summary)
        sub.add_argument("name", help="a name from `clustercaps data list`, or folder:PATH")
        sub.add_argument("--data-dir", type=Path, help="folder with the official files")
        if action == "show":
            sub.add_argument("--split", default="train", choices=("train", "test"))
            sub.add_argument("--out", type=Path, required=True, help="file to write")


def run(arguments: argparse.Namespace) -> None:
    """Run the action and print its result."""
    from clustercaps.data import inspection
    from clustercaps.utils.paths import output_path

    if arguments.action == "list":
        with json_document(arguments.json) as write:
            print(inspection.list_sets())
            write(inspection.set_rows())
    elif arguments.action == "get":
        print(inspection.get(arguments.name, arguments.data_dir))
    elif arguments.action == "check":
        print(inspection.check(arguments.name, arguments.data_dir))
    else:
        output_path(arguments.out)
        print(inspection.show(arguments.name, arguments.out, arguments.split, arguments.data_dir))
