"""The notebooks run, and their saved outputs are those of a complete run."""

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent.parent / "notebooks").glob("*.ipynb"))
# What the output must say, besides figures: the notebook's own checks of what it explains.
SAYS = {
    "tour": ["weights are 1/spread, divided by their sum: True", "uniform weights: error"],
    "own_data": ["epoch 8/8", "% of 60 held-out images", "the same output: True"],
}


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(notebook: Any) -> str:
    outputs = [each for cell in code_cells(notebook) for each in cell["outputs"]]
    return "".join("".join(each["text"]) for each in outputs if each["output_type"] == "stream")


def figures(notebook: Any) -> list[bool]:
    """Whether each code cell shows a figure."""
    return [
        any("image/png" in each.get("data", {}) for each in cell["outputs"])
        for cell in code_cells(notebook)
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_saved_outputs_are_complete(path: Path) -> None:
    notebook = json.loads(path.read_text())
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(figures(notebook)) >= 3
    text = printed(notebook)
    for words in SAYS[path.stem]:
        assert words in text
    for unwanted in ("Traceback", "Warning", "/home/", "/root/", "/opt/", "/tmp/"):
        assert unwanted not in text
    assert path.stat().st_size < 600_000


@pytest.mark.notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    saved = json.loads(path.read_text())
    notebook = nbformat.read(path, as_version=4)
    # Raises an error if a cell does.
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    assert figures(notebook) == figures(saved)
    for words in SAYS[path.stem]:
        assert words in printed(notebook)


def test_both_notebooks_are_there() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SAYS)
