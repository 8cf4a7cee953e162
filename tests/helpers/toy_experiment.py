"""An experiment that measures nothing much."""

from functools import partial
from pathlib import Path

from clustercaps.cli import main
from clustercaps.experiments.harness.cells import Cell, Experiment, Row, Workspace
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.spread import spreads
from clustercaps.utils.plotting import new_figure


class Toy:
    """An experiment of two cells that remembers what was measured."""

    def __init__(self) -> None:
        self.measured: list[tuple[str, int]] = []
        self.folders: list[Path] = []
        self.settings: dict[str, object] = {"epochs_of_toy": 3}
        self.failure: Exception | None = None
        self.experiment = Experiment("Toy", self.cells, self.table, self.figure, notes="None.")

    def cells(self, _: str) -> list[Cell]:
        return [
            Cell(id, {"id": id, **self.settings}, partial(self.measure, id), data)
            for id, data in (("b/one", "svhn"), ("a/two", "mnist"))
        ]

    def measure(self, id: str, seed: int, workspace: Workspace) -> Row:
        if self.failure is not None and id == "b/one":
            raise self.failure
        self.measured.append((id, seed))
        self.folders.append(workspace.folder)
        return {"test_error": 10.0 + seed, "commit": "123456789012"}

    def table(self, rows: list[Row], _: str) -> str:
        return markdown_table(["cell", "error"], [[i, str(s)] for i, s in spreads(rows).items()])

    def figure(self, *_: object) -> object:
        figure = new_figure(2.0, 2.0)
        figure.subplots().plot([0, 1])
        return figure


def reproduce(out: Path, *flags: str) -> int:
    return main(["reproduce", "toy", "--out", str(out), *flags])
