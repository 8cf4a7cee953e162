"""Export every registered network with random weights, and compare each file with its network.

    make test-export
    python tests/export/sweep.py --out results/export.csv
    python tests/export/sweep.py m1 capsnet

The exit code is 1 if a network is refused that should not be, or written although it should not be.
"""

import argparse
import csv
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent.parent)]

import torch  # noqa: E402
from helpers.untrained import untrained  # noqa: E402

import clustercaps as cc  # noqa: E402
from clustercaps.export import verify  # noqa: E402
from clustercaps.export.samples import draw_samples  # noqa: E402
from clustercaps.export.write import FORMATS, export  # noqa: E402
from clustercaps.training.finished import Trained  # noqa: E402

SIZES = (28, 32, 48, 64)
# What cannot be exported: its operators do not exist in ONNX.
REFUSED = {("kernel_capsnet", "onnx")}


def smallest(name: str) -> Trained:
    """A network at the first image size that it can have."""
    for size in SIZES:
        try:
            return untrained(name, img_size=size)
        except ValueError:
            if size == SIZES[-1]:
                raise
    raise AssertionError


def attempt(name: str, format: str) -> dict[str, object]:
    """Export one network; a row of the table."""
    trained = smallest(name)
    parameters = sum(each.numel() for each in trained.model.parameters())
    row: dict[str, object] = {"network": name, "format": format, "parameters": parameters}
    row["size"] = trained.model.img_size[0]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / f"network{FORMATS[format][0]}"
        try:
            done = export(trained, format, out, draw_samples(trained))
        except ValueError as error:
            assert not out.exists()
            return {**row, "result": "refused", "why": str(error)}
        found = done.verified
        share = found.difference / found.scale if found.scale else 0.0
        row["difference"] = f"{share:.1e}"
        return {**row, "result": "verified", "operators": done.card.operators}


def main() -> int:
    """Run the sweep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help="networks (default: all)")
    parser.add_argument("--formats", nargs="+", default=["onnx", "pt2"], choices=list(FORMATS))
    parser.add_argument("--out", type=Path, help="CSV file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # Speed does not matter for random weights on a busy machine.
    verify.TURNS = 1
    rows, unexpected = [], 0
    for name in arguments.networks or cc.list_models():
        for format in arguments.formats:
            row = attempt(name, format)
            rows.append(row)
            wrong = (row["result"] == "refused") != ((name, format) in REFUSED)
            unexpected += wrong
            print("NOT EXPECTED" if wrong else "", *row.values(), flush=True)
    if arguments.out:
        names = ("network", "size", "parameters", "format", "result", "operators", "difference")
        with arguments.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, (*names, "why"), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
