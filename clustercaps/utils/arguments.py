"""Check the arguments of a network, from `--set` or `config.json`, against its annotations."""

import inspect
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from clustercaps.utils.errors import unknown

# No network has a size beyond this; a corrupt file may.
LARGEST = 1_000_000


def check_arguments(network: type, arguments: Mapping[str, Any], source: str) -> None:
    """Raise an error for arguments that a network does not have, or of another type.

    Args:
        network: The network's class.
        arguments: Values by name, as JSON has them.
        source: The start of the message.
    """
    known = [name for name in inspect.signature(network.__init__).parameters if name != "self"]  # type: ignore[misc]
    hints = typing.get_type_hints(network.__init__)  # type: ignore[misc]
    for name, value in arguments.items():
        if name not in known:
            raise ValueError(f"{source}: {unknown('setting', name, known)}")
        if name in hints and not fits(value, hints[name]):
            shown = repr(value) if len(repr(value)) < 80 else f"{repr(value)[:80]} ..."
            raise ValueError(f"{source}: {name} must be {describe(hints[name])}, got {shown}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has an annotated type; numbers must be finite and below `LARGEST`."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, each) for each in inner)
    if hint is Any:
        return True
    if origin is dict:
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if origin is not None:
        # JSON knows no tuples: lists stand for them.
        items = [each for each in inner if each is not Ellipsis]
        fixed = origin is tuple and Ellipsis not in inner
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and (not fixed or len(value) == len(items))
            and all(fits(each, items[0]) for each in value)
        )
    # bool is an int to Python.
    if hint in (int, float) and not isinstance(value, bool):
        numbers = int if hint is int else (int, float)
        return isinstance(value, numbers) and math.isfinite(value) and abs(value) <= LARGEST
    return hint not in (int, float) and isinstance(value, hint)


def describe(hint: Any) -> str:
    """An annotation in words."""
    names = {int: f"an integer up to {LARGEST:,}", float: f"a number up to {LARGEST:,}"}
    names |= {bool: "true or false", str: "text", types.NoneType: "null"}
    if hint in names:
        return names[hint]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(describe(each) for each in typing.get_args(hint)))
    if typing.get_origin(hint) is dict:
        return "an object"
    kinds = {int: "integers", float: "numbers", str: "texts"}
    return f"a list of {kinds.get(typing.get_args(hint)[0], 'values')}"
