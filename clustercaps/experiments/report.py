"""`clustercaps report`: all results as one page, docs/reproduction.md."""

import os
from pathlib import Path

from clustercaps.experiments import EXPERIMENTS, get_experiment
from clustercaps.experiments.markdown import fragment
from clustercaps.experiments.store import Store

HEAD = """\
# Reproduction of the paper

Written by `clustercaps report` from the files in [results]({results}); edit those, not this page.
Every table puts the paper's printed numbers beside ours and says what was run: data, seeds, epochs,
time, machine, commit. Errors are those of the last epoch, never of the best one. Where the paper
contradicts itself is in [routing.md](routing.md).

```
clustercaps reproduce NAME --budget quick        # NAME: {names}
clustercaps reproduce NAME --budget full         # the paper's protocol; days on a GPU
clustercaps reproduce --list NAME --budget full  # one resumable command per cell and seed
clustercaps report                               # this page again
```
"""
# Smoke results say nothing about the method.
SHOWN = ("full", "quick")


def render(results: Path, page: Path) -> str:
    """The page, a function of the CSV files in the folder of the results and nothing else.

    Args:
        results: The folder.
        page: Where the page will be, for its links.
    """
    to_results = os.path.relpath(results, page.parent).replace(os.sep, "/") + "/"
    parts = [HEAD.format(results=to_results, names=", ".join(EXPERIMENTS))]
    for name, summary in EXPERIMENTS.items():
        experiment = get_experiment(name)
        found = False
        for budget in SHOWN:
            store = Store(results / f"{name}-{budget}.csv", experiment.cells(budget))
            rows = store.rows()
            if rows:
                parts.append(fragment(name, experiment, budget, rows, to_results))
                found = True
        if not found:
            parts.append(f"## {experiment.title}\n\nNo results yet. It measures {summary}.\n")
    return "\n".join(parts)
