"""One mutant: damage a target, read it, and say what came of it."""

import contextlib
import io
import os
import random
import shutil
import tempfile
from pathlib import Path

from clustercaps.cli import explain, main
from fuzz import mutate
from fuzz.commands import COMMANDS, prepare
from fuzz.targets import TARGETS, IllegalError

GOOD = ("refused", "unchanged", "legal")
BAD = ("traceback", "crash", "hang", "damaged", "unclear", "left behind")
# A twentieth of the mutants replaces the file by a pipe, folder, device, loop or nothing.
SPECIAL = 0.05


class Bench:
    """A folder for mutants, and the content of good files by target."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="clustercaps-fuzz-"))
        self._content: dict[str, str] = {}

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def attempt(self, name: str, seed: int, number: int) -> tuple[str, str]:
        """Outcome of one mutant, and the message or damage that led to it."""
        chance = random.Random(f"{seed}/{name}/{number}")
        # Deep enough that "../.." on a command line does not reach the files of other programs.
        place = self.folder / "a" / "b" / "mutant"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if name in COMMANDS:
            return self._command(COMMANDS[name], place, chance)
        return self._file(name, place, chance)

    def _file(self, name: str, place: Path, chance: random.Random) -> tuple[str, str]:
        target = TARGETS[name]
        path: Path = chance.choice(target.make(place))
        if name not in self._content:
            self._content[name] = target.use(place)
        before = path.read_bytes()
        if chance.random() < SPECIAL:
            detail = mutate.kind_of(path, chance)
        else:
            after = (mutate.text_of if target.text else mutate.bytes_of)(before, chance)
            path.write_bytes(after)
            detail = f"{len(before)} to {len(after)} bytes"
        try:
            content = target.use(place)
        except IllegalError as error:
            return "damaged", f"{error}: {detail}"
        except Exception as error:
            line, code = explain(error)
            if code != 2:
                return "traceback", line
            named = any(part in line for part in (path.name, str(place), path.stem))
            return ("refused" if named and "\n" not in line else "unclear"), line
        if content == self._content[name]:
            return "unchanged", detail
        return ("damaged" if target.checked else "legal"), detail

    def _command(self, words: list[str], place: Path, chance: random.Random) -> tuple[str, str]:
        prepare(place)
        words = mutate.words_of(words, chance)
        before = sorted(place.rglob("*"))
        out, err = io.StringIO(), io.StringIO()
        here = os.getcwd()
        os.chdir(place)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(words)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 2
        except BaseException as error:
            return "traceback", f"{words}: {error!r}"[:500]
        finally:
            os.chdir(here)
        detail = f"{[word[:60] for word in words]}: {err.getvalue()[-300:]}"
        if code == 0:
            return "legal", detail
        if code == 2 and sorted(place.rglob("*")) != before:
            return "left behind", detail
        return ("refused" if code == 2 and err.getvalue().strip() else "traceback"), detail
