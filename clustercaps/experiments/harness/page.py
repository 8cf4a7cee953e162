"""`clustercaps report`: all results as one page, docs/reproduction.md."""

import os
from pathlib import Path

from clustercaps.experiments import EXPERIMENTS, get_experiment
from clustercaps.experiments.harness.markdown import fragment, markdown_table
from clustercaps.experiments.harness.store import Store, key
from clustercaps.utils.files import write_atomically

HEAD = """\
# Reproduction of the paper

Written by `clustercaps report` from the files in [results]({results}); edit those, not this page.
Every table puts the paper's printed numbers beside ours and says what was run: data, seeds, epochs,
time, machine, commit. Errors are those of the last epoch, never of the best one; accuracies at
novel viewpoints are of the epoch at which networks are matched. Where the paper contradicts itself
is in [cluster-routing.md](cluster-routing.md).

```
clustercaps reproduce NAME --budget quick        # NAME: {names}
clustercaps reproduce NAME --budget night        # all images, the strong recipe; hours on two cores
clustercaps reproduce NAME --budget full         # the paper's protocol; days on a GPU
clustercaps reproduce --list NAME --budget full  # one resumable command per cell and seed
clustercaps report                               # this page again
```

On a cluster, each line of the list is a job of its own that can be repeated until it is done:

```
clustercaps reproduce --list classification --budget full > jobs.txt
xargs -d '\\n' -P 4 -n 1 sh -c < jobs.txt
sbatch --array=1-$(wc -l < jobs.txt) --wrap 'sh -c "$(sed -n ${{SLURM_ARRAY_TASK_ID}}p jobs.txt)"'
```
"""
RULE = """\
A comparison counts if the difference is larger than the deviations over seeds together, where
there are several, and at viewpoints larger than what so few test images leave to chance; "in part"
means that some comparisons agree. A quick result is about a smaller task than the paper's.
"""
APPENDIX = """\
## Appendix: quick results

Smaller tasks than those above, of the same experiments.
"""
# Best first. Smoke results say nothing about the method.
SHOWN = ("full", "night", "quick")


def fragments(results: Path, to_results: str = "") -> dict[str, dict[str, str]]:
    """The sections of every experiment that has results, by budget, the largest first.

    A budget that is complete replaces the smaller ones.

    Args:
        results: The folder of the results.
        to_results: Path to it from the page that the sections are for.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in EXPERIMENTS}
    for name, sections in found.items():
        experiment = get_experiment(name)
        for budget in SHOWN:
            store = Store(results / f"{name}-{budget}.csv", experiment.cells(budget))
            rows = store.rows()
            if rows:
                sections[budget] = fragment(name, experiment, budget, rows, to_results)
            if experiment.wanted(budget) <= {key(row) for row in rows}:
                break
    return found


def findings_table(results: Path) -> str:
    """What the paper says and whether our best results agree, a line for each experiment."""
    lines = []
    for name in EXPERIMENTS:
        experiment = get_experiment(name)
        for budget in SHOWN:
            rows = Store(results / f"{name}-{budget}.csv", experiment.cells(budget)).rows()
            found = experiment.finding(rows) if rows else None
            if found:
                seeds = len({row["seed"] for row in rows})
                by = f"{name}, {budget}, {seeds} seed{'s' if seeds > 1 else ''}"
                lines.append([found.claim, found.verdict, by])
                break
    return markdown_table(["the paper says", "here this", "measured by"], lines)


def render(results: Path, page: Path) -> str:
    """The page, a function of the CSV files in the folder of the results and nothing else.

    Args:
        results: The folder.
        page: Where the page will be, for its links.
    """
    to_results = os.path.relpath(results, page.parent).replace(os.sep, "/") + "/"
    parts = [HEAD.format(results=to_results, names=", ".join(EXPERIMENTS))]
    parts.append(f"## What holds\n\n{findings_table(results)}\n\n{RULE}")
    appendix: list[str] = []
    for name, sections in fragments(results, to_results).items():
        largest = next(iter(sections), None)
        for budget, text in sections.items():
            smaller = budget == "quick" and budget != largest
            (appendix if smaller else parts).append(text)
        if not sections:
            title = get_experiment(name).title
            parts.append(f"## {title}\n\nNo results yet. It measures {EXPERIMENTS[name]}.\n")
    if appendix:
        parts += [APPENDIX, *appendix]
    return "\n".join(parts)


def write(results: Path, page: Path) -> None:
    """Write the page, and the text beside every CSV, anew."""
    for name, sections in fragments(results).items():
        for budget, text in sections.items():
            write_atomically(results / f"{name}-{budget}.md", text)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, render(results, page))
