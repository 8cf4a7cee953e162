"""Progress bars with the time left, on stderr; none where there is no terminal or no tqdm."""

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

Item = TypeVar("Item")


class NoBar:
    """Stands in for tqdm where it is not installed."""

    n = 0

    def __enter__(self) -> "NoBar":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, _: int) -> None:
        """Show nothing."""

    def reset(self) -> None:
        """Show nothing, from the start."""

    def close(self) -> None:
        """Stop showing nothing."""


def progress(description: str, total: int, unit: str = "B") -> Any:
    """Open a progress bar that stays away from work of less than two seconds."""
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
    """The items, with a bar and the time left if they take more than two seconds.

    Args:
        items: What is gone through.
        what: Is being done.
    """
    with progress(what, len(items), "") as bar:
        for item in items:
            yield item
            bar.update(1)


class StepBar:
    """A bar with the time left, on stderr; a line for everything begun where that is a file."""

    def __init__(self, total: int) -> None:
        try:
            from tqdm import tqdm
        except ImportError as error:
            raise ImportError("bench needs tqdm: pip install 'clustercaps[train]'") from error
        # Off, by None, where stderr is a file: it would fill with half-drawn bars.
        self._bar: Any = tqdm(
            total=total, leave=False, unit="turn", dynamic_ncols=True, disable=None
        )

    def __enter__(self) -> "StepBar":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def say(self, text: str) -> None:
        """What is being done."""
        self._bar.set_description(text)
        self.note(text)

    def note(self, text: str) -> None:
        """Something for those who see no bar."""
        if self._bar.disable:
            print(text, file=sys.stderr, flush=True)

    def step(self, turns: int = 1) -> None:
        """Some turns are over."""
        self._bar.update(turns)
