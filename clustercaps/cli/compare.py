"""Compare runs: a table, and their learning curves in one figure.

clustercaps compare runs/m1 runs/s1 --figure compare.png
"""

import argparse
from pathlib import Path

from clustercaps.utils.extras import require
from clustercaps.utils.interrupts import silent_interrupts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and the figure."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders")
    parser.add_argument(
        "--figure", type=Path, default=Path("compare.png"), help="file (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the table and draw the curves."""
    require("train", "figures")
    with silent_interrupts():
        from clustercaps.training.figures import learning_curves
        from clustercaps.training.run_folder import RunFolder
    from clustercaps.utils.paths import output_path
    from clustercaps.utils.tables import printable, text_table

    output_path(arguments.figure)
    rows, curves = [], {}
    for path in arguments.runs:
        folder = RunFolder(path)
        settings, metrics = folder.settings, folder.metrics()
        if settings is None:
            raise ValueError(f"{path} contains no run")
        result = folder.result
        tested = [line["test_error"] for line in metrics if "test_error" in line]
        rows.append(
            [
                str(path),
                settings.model,
                settings.data,
                settings.recipe,
                str(settings.seed),
                f"{len(metrics)}/{settings.epochs}",
                f"{result['parameters']:,}" if result else "-",
                f"{metrics[-1]['seconds']:.0f}" if metrics else "-",
                f"{tested[-1]:.2f}" if tested else "-",
                "validation" if settings.validate else "test",
            ]
        )
        curves[str(path)] = metrics
    header = [
        "run",
        "model",
        "data",
        "recipe",
        "seed",
        "epochs",
        "parameters",
        "seconds",
        "error %",
        "split",
    ]
    print(text_table(header, rows))
    print(f"\n{printable(str(learning_curves(curves, arguments.figure)))}")
