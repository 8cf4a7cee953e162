"""Compare the novel accuracy of networks at equal familiar accuracy.

`familiar_curve` and `novel_curve` of a row are the accuracies of its tests, in chronological order.
"""

from collections.abc import Sequence

from clustercaps.experiments.harness.cells import Row


def points(row: Row, name: str) -> list[float]:
    """A curve of a row, "familiar" or "novel"."""
    # A curve with one test is read from the file as a number.
    return [float(part) for part in str(row[f"{name}_curve"]).split()]


def at_level(row: Row, level: float) -> tuple[float, float]:
    """Familiar and novel accuracy of the first test that reaches a familiar accuracy.

    Args:
        row: A run.
        level: A familiar accuracy that the run reaches.
    """
    both = zip(points(row, "familiar"), points(row, "novel"), strict=True)
    return next(point for point in both if point[0] >= level)


def comparisons(rows: Sequence[Row], target: float) -> list[tuple[float, list[Row]]]:
    """Familiar accuracies at which to match runs, each with the runs that reach it.

    The first is the target or, if some run never reaches it, the highest that all runs reach. If
    one network is the limiting one, the others are also compared without it.

    Args:
        rows: The runs of one task: one per network and seed.
        target: The familiar accuracy to match at if all runs reach it.
    """
    if not rows:
        return []
    level, slowest = min((row["familiar_best"], row["model"]) for row in rows)
    found = [(min(level, target), list(rows))]
    others = [row for row in rows if row["model"] != slowest]
    if level < target and len({row["model"] for row in others}) > 1:
        higher = min(row["familiar_best"] for row in others)
        if higher > level:
            found.append((min(higher, target), others))
    return found
