"""A missing package is one line that says what to install."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.pyproject import extras

from clustercaps.utils.extras import EXTRAS, PACKAGES, naming_extra, require

# For those who work on clustercaps, not for its users.
TOOLS = {"dev", "browser", "docs", "examples", "notebooks", "release"}


def test_every_extra_is_the_one_in_pyproject() -> None:
    declared = {name: set(bounds) for name, bounds in extras().items() if name not in TOOLS}
    known = {name: {PACKAGES.get(m, m) for m in modules} for name, modules in EXTRAS.items()}
    assert known == declared, "add the extra to EXTRAS in clustercaps/utils/extras.py"


def test_only_missing_packages_of_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with (
        pytest.raises(ModuleNotFoundError, match=r"pillow; run: pip install 'clustercaps\[train\]"),
        naming_extra(),
    ):
        import PIL  # noqa: F401
    # The package is there, but incomplete: installing the extra would not help.
    with (
        pytest.raises(ModuleNotFoundError, match=r"^No module named 'tqdm.no'"),
        naming_extra(),
    ):
        __import__("tqdm.no")


def test_all_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "figures", ("nothing_draws", "nothing_trains"))
    monkeypatch.setitem(EXTRAS, "train", ("nothing_trains", "torch"))
    said = r"not installed: nothing_trains, nothing_draws; .* 'clustercaps\[figures,train\]'"
    with pytest.raises(ModuleNotFoundError, match=said):
        require("train", "figures")


BASE_INSTALL = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("accelerate", "PIL", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
import importlib.util
sys.meta_path.insert(0, Missing())
whole = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name in ("accelerate", "PIL", "matplotlib") else whole(name, *rest)
)
from clustercaps.cli import main
for line in sys.stdin.read().splitlines():
    print(main(line.split()), file=sys.stderr)
"""
COMMANDS = """train m1 --out run
evaluate m1:fashion-mnist
predict m1:fashion-mnist image.png
compare run
demo --out run
reproduce ablation --budget smoke --out results
explore --no-open
export m1:fashion-mnist --format pt2
bench --quick --out bench.csv
bench epoch --quick --out bench.csv
data show fashion-mnist-mini --out sheet.png"""


def test_commands_without_extras_say_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BASE_INSTALL],
        input=COMMANDS,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    lines = done.stderr.splitlines()
    for command, said, code in zip(COMMANDS.splitlines(), lines[::2], lines[1::2], strict=True):
        assert said.startswith("clustercaps: error: "), command
        assert "pip install 'clustercaps[" in said, command
        assert code == "2", command
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


SKLEARN_ONLY = """
import sys
sys.modules.update(dict.fromkeys(("accelerate", "PIL", "matplotlib")))
import numpy as np
import clustercaps as cc
images = np.random.default_rng(0).random((20, 16, 16))
model = cc.sklearn.CapsuleClassifier("m1", epochs=1)
print(len(model.fit(images, np.arange(20) % 2).predict(images)))
"""


def test_scikit_learn_needs_no_other_extra() -> None:
    done = subprocess.run([sys.executable, "-c", SKLEARN_ONLY], capture_output=True, text=True)
    assert done.stdout == "20\n", done.stderr
