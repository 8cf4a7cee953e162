"""Image sets: list them, get one, or check the files of one.

clustercaps data list
clustercaps data get cifar10
clustercaps data check smallnorb --data-dir ~/norb
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`list`, or `get` and `check` with a name."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    actions.add_parser("list", help="every set, its size, and whether it is here")
    for action, summary in {
        "get": "fetch a set into the cache, from wherever it can be had",
        "check": "verify the files of a set without fetching anything",
    }.items():
        sub = actions.add_parser(action, help=summary)
        sub.add_argument("name", help="a name from `clustercaps data list`, or folder:PATH")
        sub.add_argument("--data-dir", type=Path, help="folder with the official files")


def run(arguments: argparse.Namespace) -> None:
    """Do it and print what there is."""
    from clustercaps.data import commands

    if arguments.action == "list":
        print(commands.list_sets())
    elif arguments.action == "get":
        print(commands.get(arguments.name, arguments.data_dir))
    else:
        print(commands.check(arguments.name, arguments.data_dir))
