"""Every experiment as a user would start it, with the smallest budget."""

from pathlib import Path

import pytest
from PIL import Image

from clustercaps import data
from clustercaps.cli import main
from clustercaps.experiments import EXPERIMENTS, get_experiment
from clustercaps.experiments.harness.store import read_rows


@pytest.fixture(autouse=True)
def _small_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data.load

    def load(name: str, split: str = "train", *args: object, **kwargs: object) -> data.Images:
        images = whole(name, split, *args, **kwargs)
        return images.subset(slice(0, 100)) if split == "test" else images

    monkeypatch.setattr(data, "load", load)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke(name: str, tmp_path: Path) -> None:
    assert main(["reproduce", name, "--budget", "smoke", "--out", str(tmp_path)]) == 0
    path = tmp_path / f"{name}-smoke.csv"
    rows = read_rows(path)
    cells = get_experiment(name).cells("smoke")
    assert [row["cell"] for row in rows] == [cell.id for cell in cells]
    assert [row["settings_hash"] for row in rows] == [cell.hash for cell in cells]
    for row in rows:
        assert row["commit"]
        assert row["parameters"] > 1000
        assert 0 <= row.get("test_error", 0) <= 100
    text = path.with_suffix(".md").read_text()
    for expected in ("| --- |", "- Machine: ", f"Completed: {len(cells)} of {len(cells)}"):
        assert expected in text
    with Image.open(path.with_suffix(".png")) as figure:
        assert min(figure.size) > 300
    assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
