"""Examples of the documentation pages, and what they say they print."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
STATED = r'\s*```text title="prints"\n(?P<prints>.*?)^```'
EXAMPLE = re.compile(rf"^```python\n(?P<code>.*?)^```\n(?:{STATED})?", re.S | re.M)


def examples(text: str) -> Iterator[tuple[str, str | None]]:
    """The code of every example of a page, and its stated output if there is one."""
    for found in EXAMPLE.finditer(text):
        yield found["code"], found["prints"]


def run_examples(text: str) -> list[tuple[str, str]]:
    """Run the examples of a page one after the other; pairs of stated and actual output."""
    names: dict[str, object] = {"__name__": "__main__"}
    compared = []
    for code, prints in examples(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        if prints is not None:
            compared.append((prints, printed.getvalue()))
    return compared
