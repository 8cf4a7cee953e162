"""Messages for bad input: what was wrong, what was expected, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """A message that `name` is not a known `kind`, with a guess of what was meant."""
    names = sorted(known)
    close = get_close_matches(name.lower().replace("_", "-"), [n.replace("_", "-") for n in names])
    guess = next((n for n in names if close and n.replace("_", "-") == close[0]), None)
    hint = f"did you mean {guess!r}? " if guess else ""
    return f"unknown {kind} {name!r}; {hint}known: {', '.join(names)}"


def at_least(name: str, value: int, smallest: int) -> None:
    """Raise an error unless `value` is an integer of at least `smallest`."""
    # bool is an int to Python, but `votes=True` is a mistake.
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
        raise ValueError(f"{name} must be an integer of at least {smallest}, got {value!r}")
