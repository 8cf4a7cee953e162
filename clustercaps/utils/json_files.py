"""JSON that every program can read: finite numbers only, and errors that name the file.

Imports nothing heavy.
"""

import json
import math
from pathlib import Path
from typing import Any

from clustercaps.utils.files import naming, write_atomically
from clustercaps.utils.paths import check_input

# Far above any file of this library; a larger one is not read into memory.
MOST_BYTES = 2**28


def json_text(content: Any, indent: int | None = None, sort_keys: bool = False) -> str:
    """JSON text of plain values; NaN and infinity are refused, because JSON has neither."""
    return json.dumps(content, indent=indent, sort_keys=sort_keys, allow_nan=False)


def write_json(path: Path, content: Any, indent: int | None = 2) -> None:
    """Write a JSON file atomically."""
    try:
        text = json_text(content, indent)
    except ValueError as error:
        raise ValueError(f"cannot write {path}: a value is NaN or infinite ({error})") from error
    write_atomically(path, text + "\n")


def parse_json(text: str, source: Path | str) -> Any:
    """The value of a JSON text; `source` names it in errors."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"{source} is not valid JSON here: it is nested too deeply") from None
    except MemoryError:
        raise ValueError(f"{source} does not fit into memory") from None
    except ValueError as error:
        raise ValueError(f"{source} is not valid JSON: {error}") from error


def parse_object(text: str, source: Path | str) -> dict[str, Any]:
    """The JSON object in a text; any other value is refused."""
    content = parse_json(text, source)
    if not isinstance(content, dict):
        raise ValueError(
            f"{source} is corrupt: expected a JSON object, got {type(content).__name__}"
        )
    return content


def read_text(path: Path) -> str:
    """The text of a file of moderate size."""
    check_input(path)
    with naming(path):
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ValueError(f"{path} is corrupt: it has {size:,} bytes, at most {MOST_BYTES:,}")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is corrupt: it is not UTF-8 text ({error})") from error
        except MemoryError:
            raise ValueError(f"{path} does not fit into memory") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    return parse_object(read_text(path), path)


def is_finite(value: Any, levels: int = 16) -> bool:
    """Whether all numbers in a plain value are finite; also False if it has too many levels."""
    if isinstance(value, float):
        return math.isfinite(value)
    if not isinstance(value, dict | list | tuple):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(is_finite(part, levels - 1) for part in parts)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number; all numbers must be finite")


def _finite(digits: str) -> float:
    value = float(digits)
    # 1e999 is infinity to Python.
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large; all numbers must be finite")
    return value
