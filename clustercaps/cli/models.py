"""List every registered network with its parameters.

The paper's printed count stands in brackets; a mark says that it does not fit the network.
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(arguments: argparse.Namespace) -> None:
    """Print the tables and the notes."""
    from clustercaps.experiments.harness import counts
    from clustercaps.models import get_preset
    from clustercaps.utils.tables import text_table

    rows = [
        [name, *(str(count) for count in row.values()), get_preset(name).summary]
        for name, row in counts.classifier_table().items()
    ]
    print("Classifiers: parameters on each data set (in brackets: as the paper prints them)\n")
    print(text_table(["model", *counts.TASKS, "what it is"], rows))
    others = [
        [name, str(count), images(name), get_preset(name).summary]
        for name, count in counts.other_networks().items()
    ]
    print("\nOther networks, with their default settings\n")
    print(text_table(["model", "parameters", "images", "what it is"], others))
    peers = [
        [name, str(count), images(name), get_preset(name).summary + marked(name)]
        for name, count in counts.peer_networks().items()
    ]
    print("\nNetworks of other papers, with their default settings\n")
    print(text_table(["model", "parameters", "images", "what it is"], peers))
    print()
    for mark, note in counts.NOTES.items():
        print(f"{mark} {note}")
    print("  The paper calls affine_capsules C4K4D32; only C4 K8 D4 gives the counts it prints.")
    print("  [reconstruction]: our reading of a system that its paper or code leaves partly open.")


def images(name: str) -> str:
    """The size of the images that a network was made for."""
    from clustercaps.models import get_preset
    from clustercaps.utils.sizes import show_size

    return show_size(get_preset(name).img_size)


def marked(name: str) -> str:
    """A mark for networks that are our reading of a paper."""
    from clustercaps.models import get_preset

    return " [reconstruction]" if get_preset(name).reconstruction else ""
