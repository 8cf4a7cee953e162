"""Runs that two experiments share are trained once."""

from dataclasses import replace
from pathlib import Path

from helpers.toy_experiment import Toy, reproduce

from clustercaps.experiments.harness.store import read_rows


def test_a_run_that_another_experiment_has_is_taken_over(toy: Toy, tmp_path: Path) -> None:
    stored = tmp_path / "toy-quick.csv"
    assert reproduce(tmp_path, "--seeds", "0,1") == 0
    stored.rename(tmp_path / "twin-quick.csv")
    toy.measured.clear()
    cells = [replace(cell, same_as=("twin", cell.id)) for cell in toy.cells("quick")]
    toy.experiment = replace(toy.experiment, cells=lambda _: cells)
    assert reproduce(tmp_path, "--cell", "a/two") == 0
    assert toy.measured == [("a/two", 2)]  # which the other one does not have
    assert [row["seed"] for row in read_rows(stored)] == [0, 1, 2]
    assert reproduce(tmp_path, "--cell", "a/two", "--seeds", "1", "--fresh") == 0
    assert toy.measured.pop() == ("a/two", 1)
    cells[1] = replace(cells[1], settings={**cells[1].settings, "epochs_of_toy": 4})
    stored.unlink()
    assert reproduce(tmp_path, "--cell", "a/two", "--seeds", "0") == 0
    assert toy.measured.pop() == ("a/two", 0)  # its settings are not those of the other


def test_another_measurement_uses_the_same_run_folder(toy: Toy, tmp_path: Path) -> None:
    cells = [replace(cell, same_as=("twin", "other")) for cell in toy.cells("quick")]
    toy.experiment = replace(toy.experiment, cells=lambda _: cells)
    assert reproduce(tmp_path, "--cell", "a/two", "--seeds", "1") == 0
    assert toy.folders == [tmp_path / "runs" / "twin-quick" / "other" / "seed-1"]
