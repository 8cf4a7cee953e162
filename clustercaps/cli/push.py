"""Upload a trained network to the Hugging Face Hub.

    clustercaps push runs/m1 user/m1-fashion-mnist
    clustercaps push runs/m1 user/m1-fashion-mnist --private --licence cc-by-4.0

Uploads configuration, weights and a model card that says how the network was trained. Log in with
`hf auth login` first. Others load it with cc.from_pretrained("user/m1-fashion-mnist").
"""

import argparse
from pathlib import Path

from clustercaps.cli.evaluate import add_run
from clustercaps.utils.interrupts import silent_interrupts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the network, its name on the Hub, and what its page says."""
    add_run(parser, device=False)
    parser.add_argument("repo", metavar="USER/REPO", help="name on the Hub; created if missing")
    parser.add_argument("--private", action="store_true", help="create a private repository")
    parser.add_argument(
        "--licence", default="mit", help="licence of the weights (default: %(default)s)"
    )
    parser.add_argument(
        "--card",
        type=Path,
        help="Markdown file for the page (default: written from the run; without a run, README.md "
        "beside the weights)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Upload and print the address."""
    with silent_interrupts():
        from clustercaps.models.locate import locate
        from clustercaps.training.finished import Trained
    from clustercaps.utils.json_files import read_text

    if arguments.repo.count("/") != 1:
        raise ValueError(f"the name on the Hub must be USER/REPO, got {arguments.repo!r}")
    trained = Trained.open(arguments.run_name)
    card = arguments.card
    if card is None and trained.settings is None:
        beside = locate(arguments.run_name) / "README.md"
        card = beside if beside.is_file() else None
    text = None if card is None else read_text(card)
    private = True if arguments.private else None
    print(trained.push_to_hub(arguments.repo, arguments.licence, text, private=private))
