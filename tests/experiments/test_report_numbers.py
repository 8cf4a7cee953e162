"""A page rendered from results states only numbers that are in them."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.measured import is_known, known_numbers, stated_numbers

from clustercaps.experiments import get_experiment
from clustercaps.experiments.harness import page as reproduction
from clustercaps.experiments.harness.store import CONDITIONS, Store

PAPER = Path(__file__).parents[2] / "clustercaps/experiments/paper.json"


@pytest.mark.parametrize("budget", ["quick", "night", "full"])
def test_every_number_of_the_page_is_in_the_results(budget: str, tmp_path: Path) -> None:
    chance = random.Random(0)
    results, page = tmp_path / "results", tmp_path / "docs" / "page.md"
    for name in ("classification", "kd-grid", "ablation"):
        experiment = get_experiment(name)
        store = Store(results / f"{name}-{budget}.csv", experiment.cells(budget))
        rows = []
        for cell in experiment.cells(budget):
            for seed in experiment.seeds[budget]:
                row = {key: cell.settings[key] for key in ("model", "data", "recipe", "epochs")}
                row |= {"cell": cell.id, "seed": seed, "test_error": 100 * chance.random()}
                row |= {"train_seconds": round(1000 * chance.random(), 1), "weights": "last"}
                row |= {"train_images": 5000, "test_images": 1000, "parameters": 12345}
                row |= dict.fromkeys(CONDITIONS, "somewhere")
                row |= {"settings_hash": cell.hash, "settings": json.dumps(cell.settings)}
                rows.append(row)
        results.mkdir(exist_ok=True)
        store._write(rows)
        # What will be published can also be drawn.
        figure = experiment.figure(rows, budget)
        assert figure.axes
        if (name, budget) == ("classification", "night"):
            places = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
            assert places[:2] == ["M1\n(64)", "M1\n(40)"]
            # The paper's M1, beside both.
            printed: Any = figure.axes[0].containers[-1]
            paper = printed.lines[0].get_ydata()
            assert list(paper[:2]) == [5.17, 5.17]
    text = reproduction.render(results, page)
    known = known_numbers(results, PAPER)
    stated = list(stated_numbers(text, everywhere=True))
    assert len(stated) > 50
    assert [n for n, unit, scale in stated if not is_known(n, unit, scale, known)] == []
    # Without the results, the page's own numbers are unknown: the check does look them up.
    without = known_numbers(tmp_path, PAPER)
    assert [n for n, unit, scale in stated if not is_known(n, unit, scale, without)]
