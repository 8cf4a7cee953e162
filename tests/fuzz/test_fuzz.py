"""A slice of `make fuzz`: a few mutants of every file format, and of every command."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import mutate
from fuzz.attempt import GOOD, Bench
from fuzz.commands import COMMANDS
from fuzz.run import Worker, tasks
from fuzz.targets import TARGETS

# In a process of its own, where annotations are not enforced: they would refuse wrong types first.
APART = ["settings.json"]
# Reading results is slower: only in `make fuzz`.
FILES = [name for name in TARGETS if name not in (*APART, "results CSV")]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("CLUSTERCAPS_DATA", str(tmp_path / "cache"))
    bench = Bench()
    yield bench
    bench.close()


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_refused_or_harmless(name: str, bench: Bench) -> None:
    outcomes = [bench.attempt(name, 0, number) for number in range(12)]
    assert [pair for pair in outcomes if pair[0] not in GOOD] == []
    # The mutants do damage, and are noticed.
    assert any(outcome == "refused" for outcome, _ in outcomes)


def test_damaged_command_lines_end_in_one_line() -> None:
    worker = Worker()
    try:
        names = [*COMMANDS, *4 * APART]
        outcomes = [worker.run((0, n, name)) for n in range(3) for name in names]
    finally:
        worker.close()
    assert [pair for pair in outcomes if pair[0] not in GOOD] == []
    assert any(outcome == "refused" for outcome, _ in outcomes)


def test_mutants_are_seeded_and_differ() -> None:
    blob, words = bytes(range(200)), ["train", "m1", "--lr", "0.1"]
    for damage, whole in ((mutate.bytes_of, blob), (mutate.text_of, b'{"a": [1, 2], "b": "x"}')):
        first, again = ([damage(whole, random.Random(n)) for n in range(50)] for _ in range(2))
        assert first == again
        assert len(set(first) - {whole}) > 30
    changed = [tuple(mutate.words_of(words, random.Random(n))) for n in range(50)]
    assert len(set(changed) - {tuple(words)}) > 30


def test_every_target_has_its_share() -> None:
    names = [name for _, _, name in tasks(5000, 0, None)]
    assert len(names) >= 5000
    assert set(names) == {*TARGETS, *COMMANDS}


def test_a_target_that_accepts_damage_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(folder: Path) -> str:
        path = folder / "a.whl"
        return str(hash(path.read_bytes())) if path.is_file() else ""

    good = TARGETS["zip archive"]
    monkeypatch.setitem(TARGETS, "zip archive", replace(good, use=careless))
    assert "damaged" in {bench.attempt("zip archive", 0, number)[0] for number in range(9)}

    def broken(folder: Path) -> str:
        path = folder / "a.whl"
        # Not a pipe or device, which would never end here.
        good = path.is_file() and path.read_bytes()[:2] == b"PK"
        return {True: "fine"}[good]

    monkeypatch.setitem(TARGETS, "broken", replace(good, use=broken))
    assert "traceback" in {bench.attempt("broken", 0, number)[0] for number in range(60)}
