"""A cache of its own for every test, and folders with small sets."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.small_sets import MAKERS

from clustercaps.data.published import PUBLISHED
from clustercaps.data.registries import REGISTRIES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """An empty cache; without the registry marker, no route leads out of the machine."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CLUSTERCAPS_DATA", str(folder))
    if "registry" not in request.keywords:
        for name, published in list(PUBLISHED.items()):
            offline = type(published)(**{**vars(published), "addresses": ()})
            monkeypatch.setitem(PUBLISHED, name, offline)
        for name in list(REGISTRIES):
            monkeypatch.delitem(REGISTRIES, name)
    return folder


@pytest.fixture
def make_set(tmp_path: Path) -> Callable[..., Path]:
    """Write a small set into a folder: make_set(name, count, sub-folder) -> folder."""

    def make(name: str, count: int = 20, sub: str = "") -> Path:
        folder = tmp_path / "data" / sub
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in MAKERS[name](count, np.random.default_rng(0)).items():
            (folder / file).write_bytes(content)
        return tmp_path / "data"

    return make
