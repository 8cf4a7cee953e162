"""What pyproject.toml says about dependencies; Python 3.10 has no reader of TOML."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOWER_BOUND = re.compile(r'"([A-Za-z0-9_-]+)>=([\d.]+)"')


def dependencies() -> dict[str, str]:
    """The lower bounds of what every user gets, by name."""
    return dict(LOWER_BOUND.findall(_table("project").partition("\ndependencies = [")[2]))


def extras() -> dict[str, dict[str, str]]:
    """The lower bounds of every extra."""
    entries = re.findall(
        r"^([a-z]+) = \[(.*?)\](?: *#[^\n]*)?$",
        _table("project.optional-dependencies"),
        re.M | re.S,
    )
    return {name: dict(LOWER_BOUND.findall(text)) for name, text in entries}


def _table(name: str) -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return text.partition(f"\n[{name}]\n")[2].partition("\n[")[0]
