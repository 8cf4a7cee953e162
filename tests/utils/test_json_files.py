"""JSON files have finite numbers only, and errors name the file."""

from pathlib import Path

import pytest

from clustercaps.utils import json_files
from clustercaps.utils.json_files import is_finite, read_json, write_json
from clustercaps.utils.tables import printable, text_table


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": NaN}', "is not valid JSON: NaN is not a JSON number"),
        ('{"a": -Infinity}', "is not valid JSON: -Infinity is not a JSON number"),
        ('{"a": 1e999}', "is not valid JSON: 1e999 is too large"),
        ("[" * 100_000, "is not valid JSON here: it is nested too deeply"),
        ('{"a":' * 100_000, "is not valid JSON here: it is nested too deeply"),
        ("[]", "is corrupt: expected a JSON object, got list"),
        ("{", "is not valid JSON"),
    ],
)
def test_bad_files_are_named_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"x.json {complaint}") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


def test_files_that_do_not_fit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"x.json is corrupt: it is not UTF-8 text"):
        read_json(path)
    # A sparse file: a terabyte that takes no space.
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"x.json is corrupt: it has 1,099,511,627,776 bytes"):
        read_json(path)
    monkeypatch.setattr(json_files, "MOST_BYTES", 2**50)
    with pytest.raises(ValueError, match=r"x.json does not fit into memory"):
        read_json(path)


def test_no_file_gets_a_number_that_is_not_finite(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot write .*x.json: a value is NaN or infinite"):
        write_json(tmp_path / "x.json", {"a": [1.0, float("nan")]})
    assert list(tmp_path.iterdir()) == []
    write_json(tmp_path / "x.json", {"a": [1.0, None]})
    assert read_json(tmp_path / "x.json") == {"a": [1.0, None]}


def test_numbers_are_found_at_every_level() -> None:
    assert is_finite({"a": [1, 2.5, (None, "x", True)]})
    assert not is_finite({"a": [1, {"b": float("inf")}]})
    nested: list[object] = []
    for _ in range(100):
        nested = [nested]
    assert not is_finite(nested)


def test_terminal_escapes_are_shown() -> None:
    name = "\x1b[2Jcat\u202e\n"
    assert printable(name) == r"\x1b[2Jcat\u202e\n"
    assert printable("Tiger ö 猫") == "Tiger ö 猫"
    assert r"\x1b[2J" in text_table(["class"], [[name]]).splitlines()[2]
