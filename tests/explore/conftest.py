"""Fixtures of the explorer: an assembled page, a browser, and JavaScript in Node or the browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from helpers.browser import in_page, start_chromium, watched_page
from helpers.javascript import Run, in_node

from clustercaps import create_model
from clustercaps.explore.assemble import write_page
from clustercaps.explore.content import record
from clustercaps.explore.sources import open_source

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PER_CLASS = 4
# Networks with decoders that are small and untrained; the first network of the page is trained.
UNTRAINED = {
    "class_capsules": {"dim": 4, "votes": 3},
    "affine_capsules": {"votes": 3},
    "affine_cnn": {},
}


@pytest.fixture(scope="session")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the page of the tests contains: M1 with its packaged weights, and untrained networks."""
    folder = tmp_path_factory.mktemp("networks")
    torch.manual_seed(0)
    networks = [record(open_source("m1:fashion-mnist"), "m1:fashion-mnist", per_class=PER_CLASS)]
    for name, settings in UNTRAINED.items():
        create_model(name, **settings).save_pretrained(folder / name)
        source = open_source(str(folder / name), "fashion-mnist-mini")
        networks.append(record(source, name, per_class=PER_CLASS))
    return {"version": "test", "networks": networks}


@pytest.fixture(scope="session")
def explorer_file(content: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page as a file."""
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    write_page(content, path)
    return path


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """One browser for all tests."""
    with start_chromium() as browser:
        yield browser


@pytest.fixture
def explorer(chromium: "Browser", explorer_file: Path) -> Iterator["Page"]:
    """The page, opened from its file; no error may be logged and no request made."""
    with watched_page(chromium, explorer_file) as page:
        yield page


@pytest.fixture(params=["node", pytest.param("chromium", marks=pytest.mark.browser)])
def run_js(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Runs a module of the engine; see `helpers.javascript`."""
    if request.param == "node":
        if shutil.which("node") is None:
            pytest.skip("node is not installed; `make test-browser` runs this test in Chromium")
        yield in_node(tmp_path)
    else:
        with watched_page(request.getfixturevalue("chromium")) as page:
            yield in_page(page)
