"""Write a trained network as ONNX, or as a program of torch.export or AOTInductor.

    clustercaps export m1:fashion-mnist --format onnx
    clustercaps export runs/m1 --format pt2 --out m1.pt2
    clustercaps export user/repo --format aoti --images 'photos/*.jpg'

Before the file appears, its outputs are compared with those of the network on batches of 1 and 16
images. `clustercaps predict FILE IMAGE` classifies images with it; ONNX files need no PyTorch.
"""

import argparse
from pathlib import Path

from clustercaps.cli.evaluate import add_run
from clustercaps.utils.extras import require
from clustercaps.utils.interrupts import silent_interrupts

FORMATS = ("onnx", "pt2", "aoti")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the network, the format and what to compare on."""
    add_run(parser, device=False)
    parser.add_argument(
        "--format",
        required=True,
        choices=FORMATS,
        help="onnx; pt2: program of torch.export; aoti: the same, compiled for this processor",
    )
    parser.add_argument("--out", type=Path, help="file to write (default: RUN.onnx or RUN.pt2)")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="only operators of PyTorch, so that pt2 and aoti files load without clustercaps; "
        "slower",
    )
    parser.add_argument(
        "--data",
        help="dataset whose class names and preprocessing to use, for networks that were saved "
        "without them",
    )
    parser.add_argument(
        "--images",
        nargs="+",
        default=[],
        help="image files, folders or patterns to compare on (default: packaged test images of the "
        "dataset, or noise)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Write the file and say how it compares with the network."""
    require("train", *(["export"] if arguments.format == "onnx" else []))
    out = arguments.out or default_out(arguments.run_name, arguments.format)
    with silent_interrupts():
        from clustercaps.export.samples import draw_samples
        from clustercaps.export.write import check_export, describe, export
        from clustercaps.training.finished import Trained
    from clustercaps.utils.tables import printable

    check_export(arguments.format, out)
    trained = Trained.open(arguments.run_name, data_name=arguments.data)
    samples = draw_samples(trained, arguments.images)
    if arguments.format == "aoti":
        print("compiling with AOTInductor, a minute or more", flush=True)
    written = export(trained, arguments.format, out, samples, arguments.plain)
    found = written.verified
    size = out.stat().st_size / 1e6
    print(f"{printable(str(out))}: {size:.1f} MB, {trained.title}, {describe(written)}")
    print(
        f"largest difference of an output {found.difference:.1e}, outputs up to {found.scale:.3g} "
        f"(up to {found.accepted:.1e} is accepted), on {samples.origin}"
    )
    speeds = ", ".join(f"{speed:.2f}x for {count}" for count, speed in found.speed.items())
    print(f"speed relative to PyTorch on one thread, in turns: {speeds} images at a time")


def default_out(name: str, format: str) -> Path:
    """The name of the network in the current folder, with the suffix of the format."""
    stem = Path(name).resolve().name if Path(name).exists() else name
    for separator in (":", "/", "@"):
        stem = stem.replace(separator, "-")
    return Path(f"{stem}-aoti.pt2" if format == "aoti" else f"{stem}.{format}")
