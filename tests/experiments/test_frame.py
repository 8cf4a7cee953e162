"""Skipping, resuming, refusing and listing, on an experiment that measures nothing much."""

import json
import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.toy_experiment import Toy, reproduce

from clustercaps.cli import build_parser, main
from clustercaps.data import DataError
from clustercaps.experiments import EXPERIMENTS
from clustercaps.experiments.harness import runner
from clustercaps.experiments.harness.cells import Cell
from clustercaps.experiments.harness.spread import Spread, spreads
from clustercaps.experiments.harness.store import Store, read_rows
from clustercaps.training.signals import Stopped


def test_what_is_stored_is_not_measured_again(toy: Toy, tmp_path: Path) -> None:
    assert reproduce(tmp_path, "--cell", "a/*", "--seeds", "1") == 0
    assert toy.measured == [("a/two", 1)]
    assert reproduce(tmp_path) == 0
    assert len(toy.measured) == 6
    rows = read_rows(tmp_path / "toy-quick.csv")
    assert [(row["cell"], row["seed"]) for row in rows] == (
        [(id, seed) for id in ("b/one", "a/two") for seed in (0, 1, 2)]
    )
    # A commit that looks like a number is still a commit.
    assert rows[0]["commit"] == "123456789012"
    assert "| b/one | 11.00 +- 1.00 |" in (tmp_path / "toy-quick.md").read_text()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("toy-*")}
    assert set(before) == {f"toy-quick.{suffix}" for suffix in ("csv", "md", "png", "pdf")}
    assert reproduce(tmp_path) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.glob("toy-*")} == before
    assert reproduce(tmp_path, "--fresh", "--cell", "b/one", "--seeds", "2") == 0
    assert toy.measured[6:] == [("b/one", 2)]


def test_results_of_other_settings_are_refused(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, "--seeds", "0") == 0
    before = (tmp_path / "toy-quick.csv").read_text()
    toy.settings["epochs_of_toy"] = 4
    assert reproduce(tmp_path, "--seeds", "1") == 2
    err = capsys.readouterr().err
    assert "toy-quick.csv contains b/one, seed 0, with other settings" in err
    assert "epochs_of_toy was 3, now 4; move the file," in err
    assert (tmp_path / "toy-quick.csv").read_text() == before
    assert reproduce(tmp_path, "--seeds", "0", "--fresh") == 0
    stored = [json.loads(row["settings"]) for row in read_rows(tmp_path / "toy-quick.csv")]
    assert [settings["epochs_of_toy"] for settings in stored] == [4, 4]


def test_a_cell_that_is_gone_is_refused(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy-quick.csv"
    assert reproduce(tmp_path, "--seeds", "0") == 0
    path.write_text(path.read_text().replace("a/two,", "a/three,"))
    assert reproduce(tmp_path) == 2
    assert (
        "contains the cell 'a/three', which this version does not have" in capsys.readouterr().err
    )
    path.write_text("model,value\nm1,3\n")
    assert reproduce(tmp_path) == 2
    assert "was not written by `clustercaps reproduce`" in capsys.readouterr().err


def test_a_new_setting_at_its_default_is_no_change(tmp_path: Path) -> None:
    def cell(**changes: object) -> Cell:
        return Cell("a", {"lr": 0.1, **changes}, lambda *_: {}, defaults={"clip": 0.0})

    row = {"cell": "a", "seed": 0, "settings": '{"lr": 0.1}', "settings_hash": cell().hash}
    Store(tmp_path / "x.csv", [cell()]).add(row)
    assert Store(tmp_path / "x.csv", [cell(clip=0.0)]).rows()[0]["cell"] == "a"
    with pytest.raises(ValueError, match=r"clip was 0\.0, now 1\.0"):
        Store(tmp_path / "x.csv", [cell(clip=1.0)]).rows()


def test_changed_settings_are_refused_with_or_without_their_hash(tmp_path: Path) -> None:
    cell, other = (Cell("a", {"lr": lr}, lambda *_: {}) for lr in (0.1, 0.2))
    row = {"cell": "a", "seed": 0, "settings": '{"lr": 0.1}', "settings_hash": cell.hash}
    Store(tmp_path / "x.csv", [cell]).add(row)
    text = (tmp_path / "x.csv").read_text().replace("0.1}", "0.2}")
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=r"x\.csv cannot be used: the settings in line 2 are not"):
        Store(tmp_path / "x.csv", [cell]).rows()
    (tmp_path / "x.csv").write_text(text.replace(cell.hash, other.hash))
    with pytest.raises(ValueError, match=r"lr was 0\.2, now 0\.1"):
        Store(tmp_path / "x.csv", [cell]).rows()


def test_missing_data_leaves_the_rest(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.failure = DataError("svhn: no route works")
    assert reproduce(tmp_path) == 1
    assert toy.measured == [("a/two", seed) for seed in (0, 1, 2)]
    err = capsys.readouterr().err
    assert "skipped: b/one\nsvhn: no route works\nTry `clustercaps data get svhn`" in err
    # The set was tried for one seed and not for the others.
    assert err.count("b/one, seed") == 1
    assert "Completed: 3 of 6" in (tmp_path / "toy-quick.md").read_text()


def test_a_signal_ends_with_its_exit_code_and_the_way_to_go_on(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.failure = Stopped(2, tmp_path, 0, 7)
    assert reproduce(tmp_path) == 130
    assert "run the same command again" in capsys.readouterr().out
    toy.failure = None
    assert reproduce(tmp_path) == 0
    assert len(toy.measured) == 6


def test_listed_commands_do_all_there_is(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "with space"
    assert reproduce(out, "--list", "--seeds", "0,1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"clustercaps reproduce toy --budget quick --cell b/one --seeds 0 --out '{out}'"
    )
    assert not toy.measured
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0
    assert len(toy.measured) == len(read_rows(out / "toy-quick.csv")) == 4


def test_list_without_a_name_lists_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--budget", "full"]) == 0
    lines = capsys.readouterr().out.splitlines()
    wanted = "clustercaps reproduce classification --budget full --cell m1/cifar10 --seeds 0"
    assert wanted in lines
    assert {shlex.split(line)[2] for line in lines} == set(EXPERIMENTS)
    for line in lines:
        build_parser().parse_args(shlex.split(line)[1:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ablatoin"], "unknown experiment 'ablatoin'; did you mean 'ablation'? known: ablation, "),
        (["ablation", "--cell", "m9/x"], "unknown cell of ablation 'm9/x'"),
        ([], "name an experiment (parameters, recipe"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_rows_of_many_writers_all_arrive(tmp_path: Path) -> None:
    cells = [Cell(f"cell-{number}", {}, lambda *_: {}) for number in range(12)]

    def add(cell: Cell) -> None:
        row = {"cell": cell.id, "seed": 0, "settings": "{}", "settings_hash": cell.hash}
        Store(tmp_path / "x.csv", cells).add(row)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, cells))
    assert [row["cell"] for row in read_rows(tmp_path / "x.csv")] == [cell.id for cell in cells]


def test_report_is_repeatable_and_prefers_complete_full_results(toy: Toy, tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "docs" / "page.md"
    command = ["report", "--results", str(results), "--page", str(page)]
    assert main(command) == 2
    assert reproduce(results) == 0
    assert reproduce(results, "--budget", "full", "--seeds", "0") == 0
    assert main(command) == 0
    text = page.read_text()
    assert text.index("## Toy (full)") < text.index("## Toy (quick)")
    assert "](../results/toy-full.png)" in text
    assert "## Ablation: data-dependent routing\n\nNo results yet" in text
    assert main(command) == 0
    assert page.read_text() == text
    assert reproduce(results, "--budget", "full") == 0
    assert main(command) == 0
    assert "## Toy (quick)" not in page.read_text()


def test_spread() -> None:
    rows = [{"cell": "a", "seed": s, "test_error": e} for s, e in ((0, 10), (1, 11.0), (2, 12.5))]
    spread = spreads(rows)["a"]
    assert str(spread) == "11.17 +- 1.26"
    assert str(Spread((3.0,))) == "3.00"


def test_only_the_first_process_writes(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "os", SimpleNamespace(environ={"RANK": "1"}))
    assert reproduce(tmp_path) == 0
    assert len(toy.measured) == 6
    assert not list(tmp_path.iterdir())


def test_figures_are_drawn_again_without_measuring(toy: Toy, tmp_path: Path) -> None:
    assert reproduce(tmp_path, "--cell", "b/one", "--seeds", "0") == 0
    expected = (tmp_path / "toy-quick.png").read_bytes()
    for suffix in ("png", "pdf"):
        (tmp_path / f"toy-quick.{suffix}").write_bytes(b"old")
    page = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    assert main(["report", *page]) == 0
    assert (tmp_path / "toy-quick.png").read_bytes() == b"old"
    assert main(["report", "--figures", *page]) == 0
    assert (tmp_path / "toy-quick.png").read_bytes() == expected
    assert toy.measured == [("b/one", 0)]


def test_nothing_is_drawn_without_own_results(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.experiment = replace(toy.experiment, has_figure=lambda rows: len(rows) > 1)
    (tmp_path / "toy-quick.png").write_bytes(b"old")
    assert reproduce(tmp_path, "--cell", "b/one", "--seeds", "0") == 0
    assert {path.name for path in tmp_path.glob("toy-*")} == {"toy-quick.csv", "toy-quick.md"}
    assert ".png" not in (tmp_path / "toy-quick.md").read_text() + capsys.readouterr().out
    assert reproduce(tmp_path, "--cell", "b/one", "--seeds", "0,1") == 0
    assert "](toy-quick.png)" in (tmp_path / "toy-quick.md").read_text()
    assert (tmp_path / "toy-quick.pdf").exists()
