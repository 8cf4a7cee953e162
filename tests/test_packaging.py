"""What an index shows, the lower bounds, and imports on other systems."""

import subprocess
import sys
from collections.abc import Callable
from importlib import util
from types import ModuleType

import pytest
from helpers.pyproject import ROOT, dependencies, extras


def test_lowest_versions_are_the_bounds() -> None:
    users = [bounds for name, bounds in extras().items() if name in ("figures", "sklearn", "train")]
    bounds = {name: bound for table in [dependencies(), *users] for name, bound in table.items()}
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    lowest = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert len(bounds) >= 12
    # A bound may leave out the zeros at its end.
    assert lowest == {
        name: ".".join([*bound.split("."), "0", "0"][:3]) for name, bound in bounds.items()
    }


@pytest.fixture
def absolute(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], str]:
    # Hatchling is there only while a package is built.
    interface = ModuleType("interface")
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    spec = util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.absolute


PAGE = """![A](docs/a.svg) [page](docs/a.md#part) [`m1`](x.py) [away](https://a.b/c) [here](#part)
[![B](b.png)](b.md) `[code](x.md)`

```
[code](y.md)
```
"""


def test_links_of_the_readme_are_absolute_or_gone(absolute: Callable[[str, str, str], str]) -> None:
    found = absolute(PAGE, "https://host/us", "v1")
    there = "https://host/us/blob/v1"
    assert found == (
        f"![A](https://host/us/raw/v1/docs/a.svg) [page]({there}/docs/a.md#part) "
        f"[`m1`]({there}/x.py) [away](https://a.b/c) [here](#part)\n"
        f"[![B](https://host/us/raw/v1/b.png)]({there}/b.md) `[code](x.md)`\n"
        "\n```\n[code](y.md)\n```\n"
    )
    assert absolute(PAGE, "", "v1") == (
        " page `m1` [away](https://a.b/c) [here](#part)\n `[code](x.md)`\n"
        "\n```\n[code](y.md)\n```\n"
    )


IMPORT_ALL = """
import importlib, pkgutil, sys, warnings
POSIX = {"fcntl", "resource", "pwd", "grp", "termios"}
class Elsewhere:
    def find_spec(self, name, path=None, target=None):
        if name in POSIX:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
for name in POSIX:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Elsewhere())
import clustercaps
# Those for other packages, triton and timm, need them.
for info in pkgutil.walk_packages(clustercaps.__path__, "clustercaps."):
    if not ("triton" in info.name or info.name.endswith(".timm")):
        importlib.import_module(info.name)
print(POSIX & {*sys.modules})
"""


def test_no_module_needs_a_posix_system_to_be_imported() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
