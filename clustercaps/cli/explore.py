"""Write a page on which you can try out trained capsule networks, and open it.

    clustercaps explore
    clustercaps explore runs/m1 runs/class_capsules --out both.html
    clustercaps explore my-model --data fashion-mnist --no-open

The page is one file with weights, test images and code inside. It needs no server and makes no
request. Without RUN it contains packaged weights, one network of each kind and dataset.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the networks and where to write the page."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="finished runs, packaged weights such as m1:fashion-mnist, folders that "
        "save_pretrained wrote, or models on the Hugging Face Hub as user/repo (default: "
        "packaged weights, one network of each kind and dataset)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("explorer.html"),
        help="file to write (default: %(default)s)",
    )
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")
    parser.add_argument(
        "--data", help="dataset for the images (default: the one each was trained on)"
    )
    parser.add_argument("--data-dir", help="folder with the official files of the dataset")


def run(arguments: argparse.Namespace) -> None:
    """Write the page and open it."""
    check_out(arguments.out)

    from clustercaps.explore.assemble import write_page
    from clustercaps.explore.content import collect
    from clustercaps.explore.sources import packaged_sources

    names = arguments.runs or packaged_sources()
    content = collect(names, arguments.data, arguments.data_dir)
    size = write_page(content, arguments.out)
    titles = ", ".join(network["title"] for network in content["networks"])
    print(f"{arguments.out}: {size / 1e6:.1f} MB, {titles}")
    if not arguments.no_open:
        import webbrowser

        if not webbrowser.open(arguments.out.resolve().as_uri()):
            print("no browser was found; open the file yourself")


def check_out(path: Path) -> None:
    """Refuse a path that cannot become the page, before any work."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; pass a file, such as --out {path / 'explorer.html'}")
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out must end in .html, or browsers do not show it; got {path}")
    if not path.parent.is_dir():
        raise ValueError(
            f"the folder {path.parent} does not exist; create it, or pass another --out"
        )
