"""Seeded damage: to bytes, to JSON, to the kind of a file, to command lines."""

import json
import os
import random
from pathlib import Path
from typing import Any

Chance = random.Random

# Values that text, numbers and paths are replaced by.
DEEP = "[" * 100_000
WORDS = ["", " ", "0", "-1", "1.5", "nan", "inf", "1e309", "9" * 30, "a" * 5000, "é☃", "\x00", DEEP]
WORDS += [
    "--",
    "-x",
    "=",
    "votes=",
    "routing=3",
    "votes=[1]",
    "dim=null",
    "dim=1e9",
    "x=1",
    "*",
    ":",
]
WORDS += ["m1:", "folder:", "folder:nowhere", "imagenet", "/dev/null", "/dev/zero", "../..", "true"]
VALUES: list[Any] = [None, True, 0, -1, 10**30, 1e308, float("nan"), "", "x" * 3000, [], {}, [[]]]


def bytes_of(data: bytes, chance: Chance) -> bytes:
    """A file with one to three kinds of damage, half of them near its start."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        end = min(len(data), 300) if chance.random() < 0.5 else len(data)
        at = chance.randrange(end + 1)
        to = min(len(data), at + chance.choice((1, 1, 2, 4, 8, 100)))
        part, junk = data[at:to], chance.randbytes(to - at)
        sizes = (0, 1, 2**31 - 1, 2**32 - 1, chance.getrandbits(32))
        word = chance.choice(sizes).to_bytes(4, chance.choice(("big", "little")))
        flipped = bytes([part[0] ^ 1 << chance.randrange(8)]) + part[1:] if part else b""
        middle = chance.choice((flipped, junk, b"", part + part, part + junk, bytes(to - at), word))
        rest = data[at + 4 :] if middle is word else data[to:]
        data = data[:at] + middle + (rest if chance.random() < 0.9 else b"")
    return data


def text_of(data: bytes, chance: Chance) -> bytes:
    """Damage to JSON, or to lines of JSON or CSV: to its values, or to its bytes."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    line = lines[at] if len(lines) > 1 else data
    if data[:1] == b"{" and chance.random() < 0.6:
        try:
            whole = json.loads(data)
            return json.dumps(_json(whole, chance)).replace('"deep"', DEEP).encode()
        except ValueError:
            lines[at] = json.dumps(_json(json.loads(line or b"{}"), chance)).encode()
            return b"\n".join(lines)
    choice = chance.randrange(5)
    if choice == 0:
        lines.pop(at)
    elif choice == 1:
        lines.insert(at, line)
    elif choice == 2:
        cells = line.split(b",")
        cells[chance.randrange(len(cells))] = chance.choice(WORDS[:-8]).encode()
        lines[at] = b",".join(cells)
    else:
        return bytes_of(data, chance)
    return b"\n".join(lines)


def _json(value: Any, chance: Chance) -> Any:
    """The same object with one value replaced, one key removed, renamed or added."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.05:
        return "deep" if chance.random() < 0.05 else chance.choice(VALUES)
    key: Any = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    choice = chance.randrange(6)
    if choice == 0:
        value.pop(key)
    elif choice == 1 and isinstance(value, dict):
        value[f"{key}x"] = value.pop(key)
    else:
        value[key] = _json(value[key], chance)
    return value


def kind_of(path: Path, chance: Chance) -> str:
    """Replace a file by something that is no file; says by what."""
    path.unlink()
    kind = chance.choice(("pipe", "folder", "device", "loop", "nothing", "empty"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("device", "loop"):
        path.symlink_to("/dev/zero" if kind == "device" else path)
    elif kind == "empty":
        path.touch()
    return kind


def words_of(words: list[str], chance: Chance) -> list[str]:
    """A command line with one to three words replaced, removed, repeated, swapped or misspelt."""
    words = list(words)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(1, len(words)) if len(words) > 1 else 0
        choice = chance.randrange(6)
        if choice <= 1:
            words[at] = chance.choice(WORDS)
        elif choice == 2 and len(words) > 1:
            words.pop(at)
        elif choice == 3:
            words.insert(at, chance.choice(words))
        elif choice == 4:
            other = chance.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        else:
            spot = chance.randrange(len(words[at]) + 1)
            words[at] = words[at][:spot] + chance.choice("0-=,./:xé%") + words[at][spot + 1 :]
    return words
