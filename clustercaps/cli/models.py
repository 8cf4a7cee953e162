"""List every registered network with its parameter count.

The count printed in the paper follows in brackets; a mark means that it does not match the network.
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> None:
    """Print the tables and the notes."""
    from clustercaps.experiments.harness import counts
    from clustercaps.models import get_preset
    from clustercaps.utils.tables import text_table

    rows = [
        [name, *(str(count) for count in row.values()), get_preset(name).summary]
        for name, row in counts.classifier_table().items()
    ]
    print("Classifiers: parameters on each dataset (in brackets: as printed in the paper)\n")
    print(text_table(["model", *counts.TASKS, "description"], rows))
    others = [
        [name, str(count), images(name), get_preset(name).summary]
        for name, count in counts.other_networks().items()
    ]
    print("\nOther networks, with their default settings\n")
    print(text_table(["model", "parameters", "images", "description"], others))
    peers = [
        [name, str(count), images(name), get_preset(name).summary + marked(name)]
        for name, count in counts.peer_networks().items()
    ]
    print("\nNetworks from other papers, with their default settings\n")
    print(text_table(["model", "parameters", "images", "description"], peers))
    print()
    for mark, note in counts.NOTES.items():
        print(f"{mark} {note}")
    print("  The paper calls affine_capsules C4K4D32; only C4 K8 D4 has the counts it prints.")
    print("  [reconstruction]: the paper or its code leaves parts open, which we filled in.")


def images(name: str) -> str:
    """The image size that a network was designed for."""
    from clustercaps.models import get_preset
    from clustercaps.utils.sizes import show_size

    return show_size(get_preset(name).img_size)


def marked(name: str) -> str:
    """A mark for networks that are reconstructions."""
    from clustercaps.models import get_preset

    return " [reconstruction]" if get_preset(name).reconstruction else ""
