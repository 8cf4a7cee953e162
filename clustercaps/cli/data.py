"""Image sets: list them, get one, check the files of one, or look at one.

clustercaps data list
clustercaps data get cifar10
clustercaps data check smallnorb --data-dir ~/norb
clustercaps data show rendered-norb --out toys.png
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`list`, or `get`, `check` and `show` with a name."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    actions.add_parser("list", help="every set, its size, and whether it is here")
    for action, summary in {
        "get": "fetch a set into the cache, from wherever it can be had, or render it",
        "check": "verify the files of a set without fetching anything",
        "show": "draw some images of every class into a PNG file",
    }.items():
        sub = actions.add_parser(action, help=summary)
        sub.add_argument("name", help="a name from `clustercaps data list`, or folder:PATH")
        sub.add_argument("--data-dir", type=Path, help="folder with the official files")
        if action == "show":
            sub.add_argument("--split", default="train", choices=("train", "test"))
            sub.add_argument("--out", type=Path, required=True, help="file to write")


def run(arguments: argparse.Namespace) -> None:
    """Do it and print what there is."""
    from clustercaps.data import inspection

    if arguments.action == "list":
        print(inspection.list_sets())
    elif arguments.action == "get":
        print(inspection.get(arguments.name, arguments.data_dir))
    elif arguments.action == "check":
        print(inspection.check(arguments.name, arguments.data_dir))
    else:
        print(inspection.show(arguments.name, arguments.out, arguments.split, arguments.data_dir))
