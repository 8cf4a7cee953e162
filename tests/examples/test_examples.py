"""Every file in examples/ does what its docstring says."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
# Example -> patterns of what its short run prints, in this order.
PRINTS = {
    "minimal": [r"step +10: loss \d", r"error on 500 new pictures: \d"],
    "own_data": [
        r"error: \d.* % of 30 test images",
        r"new-0\.png: (circle|square|triangle) \(",
        "saved and loaded: True",
    ],
    "fine_tuning": ["initial weights: +error", "new head alone: +error", "all packaged weights:"],
    "capsules_in_a_resnet": ["error on 500 test images: ", r"weights of the last layer: tensor\("],
    "lightning_module": [r"test error: \d"],
    "hf_trainer": [r"test error: \d", "saved and loaded: True"],
    "optuna_sweep": ["trial 1: votes", "trial 2: votes", "best of 2: "],
    "several_gpus": ["epoch 1: loss", "test error: ", "process 1: same weights: True"],
}


def command_of(name: str) -> list[str]:
    if name == "several_gpus":
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return [sys.executable, *start]
    return [sys.executable]


@pytest.mark.examples
@pytest.mark.parametrize("name", PRINTS)
def test_short_run(name: str, tmp_path: Path) -> None:
    command = [*command_of(name), str(EXAMPLES / f"{name}.py"), "--small"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    for pattern in PRINTS[name]:
        assert re.search(pattern, done.stdout), f"{pattern!r} is not in:\n{done.stdout}"
    # Only the run folder that a docstring announces.
    left = {path.name for path in tmp_path.iterdir()}
    assert left == ({"runs"} if name == "own_data" else set())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_says_how_to_run_it(path: Path) -> None:
    assert path.stem in PRINTS, "say in PRINTS what it prints"
    text = path.read_text()
    docs = ast.get_docstring(ast.parse(text)) or ""
    assert f"examples/{path.name}" in docs
    assert "--small" in docs
    assert "print" in docs
    needs = {"lightning", "transformers", "optuna"} & set(
        re.findall(r"^(?:from|import) (\w+)", text, re.M)
    )
    assert bool(needs) == ("pip install 'clustercaps[examples]'" in docs)


def test_examples_are_all_there() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTS)
