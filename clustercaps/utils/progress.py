"""Progress bars on stderr; none if there is no terminal or no tqdm."""

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

from clustercaps.utils.extras import naming_extra

Item = TypeVar("Item")


class NoBar:
    """Replaces tqdm if it is not installed."""

    n = 0

    def __enter__(self) -> "NoBar":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, _: int) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def progress(description: str, total: int, unit: str = "B") -> Any:
    """Open a progress bar that appears only after two seconds."""
    try:
        tqdm = import_module("tqdm").tqdm
    except ImportError:
        return NoBar()
    return tqdm(
        desc=description,
        total=total,
        unit=unit,
        unit_scale=True,
        delay=2,
        leave=False,
        disable=None,
    )


def with_bar(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Iterate over items with a progress bar that appears after two seconds.

    Args:
        items: The items.
        what: Description of the bar.
    """
    with progress(what, len(items), "") as bar:
        for item in items:
            yield item
            bar.update(1)


class StepBar:
    """A progress bar on stderr; if stderr is a file, one line per task instead."""

    def __init__(self, total: int) -> None:
        with naming_extra():
            from tqdm import tqdm
        # None disables the bar if stderr is a file.
        self._bar: Any = tqdm(
            total=total, leave=False, unit="turn", dynamic_ncols=True, disable=None
        )

    def __enter__(self) -> "StepBar":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def say(self, text: str) -> None:
        """Describe the current task."""
        self._bar.set_description(text)
        self.note(text)

    def note(self, text: str) -> None:
        """Print a line if there is no bar."""
        if self._bar.disable:
            print(text, file=sys.stderr, flush=True)

    def step(self, turns: int = 1) -> None:
        """Advance the bar."""
        self._bar.update(turns)
