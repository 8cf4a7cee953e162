"""Compare runs: a table, and their learning curves in one figure.

clustercaps compare runs/m1 runs/s1 --figure compare.png
"""

import argparse
from pathlib import Path
from typing import Any

from clustercaps.cli.json_output import add_json, json_document
from clustercaps.utils.extras import require
from clustercaps.utils.interrupts import silent_interrupts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and the figure."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders")
    parser.add_argument(
        "--figure", type=Path, default=Path("compare.png"), help="file (default: %(default)s)"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the table and draw the curves."""
    with json_document(arguments.json) as write:
        write(compare(arguments))


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Print the table and draw the curves; returns the same as a document."""
    require("train", "figures")
    with silent_interrupts():
        from clustercaps.training.figures import learning_curves
        from clustercaps.training.run_folder import RunFolder
    from clustercaps.utils.paths import output_path
    from clustercaps.utils.tables import printable, text_table

    output_path(arguments.figure)
    runs, curves = [], {}
    for path in arguments.runs:
        folder = RunFolder(path)
        settings, metrics = folder.settings, folder.metrics()
        if settings is None:
            raise ValueError(f"{path} contains no run")
        tested = [line["test_error"] for line in metrics if "test_error" in line]
        runs.append(
            {
                "run": str(path),
                **{name: getattr(settings, name) for name in ("model", "data", "recipe", "seed")},
                **{"epochs": len(metrics), "planned_epochs": settings.epochs},
                "parameters": (folder.result or {}).get("parameters"),
                "seconds": metrics[-1]["seconds"] if metrics else None,
                "error": tested[-1] if tested else None,
                "split": "validation" if settings.validate else "test",
            }
        )
        curves[str(path)] = metrics
    header = ["run", "model", "data", "recipe", "seed", "epochs", "parameters", "seconds"]
    print(text_table([*header, "error %", "split"], [row_of(run) for run in runs]))
    print(f"\n{printable(str(learning_curves(curves, arguments.figure)))}")
    return {"runs": runs, "figure": str(arguments.figure)}


def row_of(run: dict[str, Any]) -> list[str]:
    """A run as a row of the table."""
    return [
        *(str(run[name]) for name in ("run", "model", "data", "recipe", "seed")),
        f"{run['epochs']}/{run['planned_epochs']}",
        "-" if run["parameters"] is None else f"{run['parameters']:,}",
        "-" if run["seconds"] is None else f"{run['seconds']:.0f}",
        "-" if run["error"] is None else f"{run['error']:.2f}",
        run["split"],
    ]
