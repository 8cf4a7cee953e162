"""The results of an experiment as Markdown: conditions, table, figure, notes."""

from collections.abc import Sequence

from clustercaps.experiments import BUDGETS
from clustercaps.experiments.harness.cells import Experiment, Row

# How to interpret the numbers of a budget.
MEANING = {
    "smoke": " These numbers only show that the code runs.",
    "quick": " This is a smaller task than in the paper: compare our numbers with each other, not "
    "with the paper's.",
    "night": "",
    "full": "",
}


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; "-" for empty cells."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell or "-" for cell in line) + " |" for line in lines)


def fragment(
    name: str, experiment: Experiment, budget: str, rows: Sequence[Row], to_results: str = ""
) -> str:
    """The section of an experiment.

    Args:
        name: Name of the experiment.
        experiment: The experiment.
        budget: Budget of the results.
        rows: The results.
        to_results: Path from the page to the results folder, such as "../results/".
    """
    stem = f"{to_results}{name}-{budget}"
    meaning = MEANING[budget] if any("epochs" in row for row in rows) else ""
    found, drawn = experiment.finding(rows), experiment.has_figure(rows)
    parts = [
        f"## {experiment.title} ({budget})",
        f"`clustercaps reproduce {name} --budget {budget}`: {BUDGETS[budget]}.{meaning}",
        conditions(experiment, budget, rows),
        experiment.table(rows, budget),
        f"Claim of the paper: {found.claim} Our verdict: {found.verdict}. Evidence: "
        f"{found.evidence}"
        if found
        else "",
        f"![{experiment.title}]({stem}.png)" if drawn else "",
        f"[CSV]({stem}.csv)" + (f", [PDF]({stem}.pdf)" if drawn else ""),
        experiment.notes,
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def conditions(experiment: Experiment, budget: str, rows: Sequence[Row]) -> str:
    """A list of data, seeds, epochs, time, machine and commit."""
    lines = []
    trained = [row for row in rows if "epochs" in row]
    if trained:
        sets = dict.fromkeys((r["data"], r["train_images"], r["test_images"]) for r in trained)
        lines.append(
            "Data: " + ", ".join(f"{n} ({a:,} training, {b:,} test images)" for n, a, b in sets)
        )
        epochs = unique(trained, "epochs")
        tested = " and ".join(unique(trained, "tested")) or "at the last epoch, never the best"
        recipes = ", ".join(f"`{recipe}`" for recipe in unique(trained, "recipe"))
        lines.append(
            f"Seeds: {', '.join(unique(trained, 'seed'))}; {', '.join(epochs)} epochs, recipe "
            f"{recipes}; tested {tested} (weights: "
            f"{', '.join(unique(trained, 'weights'))})"
        )
        seconds = sum(row["train_seconds"] for row in trained)
        lines.append(f"Time: {seconds:.0f} s of training in total")
    lines.append(
        f"Machine: {'; '.join(unique(rows, 'machine'))}; accelerator: "
        f"{', '.join(unique(rows, 'accelerator')) or 'not recorded'}; "
        f"torch {', '.join(unique(rows, 'torch'))}; "
        f"commit {', '.join(unique(rows, 'commit'))}"
    )
    wanted = experiment.wanted(budget)
    done = wanted & {(row["cell"], row["seed"]) for row in rows}
    lines.append(f"Completed: {len(done)} of {len(wanted)} cells and seeds")
    return "\n".join(f"- {line}" for line in lines)


def unique(rows: Sequence[Row], column: str) -> list[str]:
    """The values of a column, each once, in order of appearance."""
    return list(dict.fromkeys(str(row[column]) for row in rows if column in row))
