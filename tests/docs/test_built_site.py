"""The site that `make docs` has built: names, links and pages."""

import importlib
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import clustercaps as cc

pytestmark = pytest.mark.site

SITE = Path(__file__).parent.parent.parent / "site"
MODULES = ["clustercaps", "clustercaps.kernels"] + [
    f"clustercaps.{name}" for name in cc.__all__ if hasattr(getattr(cc, name), "__all__")
]
# What a browser loads by itself, in contrast to links that a reader follows.
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class Reader(HTMLParser):
    """Anchors, links and loaded files of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        for name, value in given.items():
            if (tag, name) in LOADED or (tag == "link" and name == "href"):
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


@pytest.fixture(scope="module")
def pages() -> dict[Path, Reader]:
    found = {}
    for path in SITE.rglob("*.html"):
        # The explorer is tested by itself; the page of errors is served from any address.
        if path.name not in ("live-explorer.html", "404.html"):
            found[path] = Reader()
            found[path].feed(path.read_text())
    assert len(found) > 60, "the site is not built: run `make docs`"
    return found


@pytest.fixture(scope="module")
def inventory() -> set[str]:
    """Every name in the reference, from the inventory that other sites link by."""
    content = (SITE / "objects.inv").read_bytes()
    start = 0
    for _ in range(4):
        start = content.index(b"\n", start) + 1
    return {line.split()[0] for line in zlib.decompress(content[start:]).decode().splitlines()}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str, inventory: set[str]) -> None:
    names = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    assert names - set(MODULES) <= inventory


def test_links_and_anchors_exist(pages: dict[Path, Reader]) -> None:
    broken = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else None
            if not target.is_file():
                broken.append(f"{path.relative_to(SITE)}: {link}")
            elif parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors:
                broken.append(f"{path.relative_to(SITE)}: no anchor {link}")
    assert not broken, "\n".join(broken)


def test_nothing_is_loaded_from_other_hosts(pages: dict[Path, Reader]) -> None:
    loaded = {link for page in pages.values() for link in page.loaded}
    assert not [link for link in loaded if urlsplit(link).scheme not in ("", "data")]
    for style in SITE.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", style.read_text()), style


def test_shapes_are_readable(pages: dict[Path, Reader]) -> None:
    text = re.sub(r"<[^>]+>", "", (SITE / "reference/functional.html").read_text())
    assert "votes: Float[batch, clusters, votes, *parent]" in text
    # A type alias of another module.
    assert "votes: Float[batch, children, parents, dim, *positions]" in text
    assert "tuple[Float[batch, *parent], Float[batch, clusters, *parent]]" in text
    for path in (SITE / "reference").glob("*.html"):
        shown = re.sub(r"<[^>]+>", "", path.read_text())
        if path.name != "index.html":
            assert not re.search(r"\w+\[Tensor, ['\"]", shown), path


def test_equations_are_drawn_without_scripts() -> None:
    page = (SITE / "mental-model.html").read_text()
    assert page.count("<math") >= 4
    assert "arithmatex" not in page


def test_the_explorer_is_a_page_of_the_site() -> None:
    assert (SITE / "live-explorer.html").stat().st_size > 1e6
    assert 'href="live-explorer.html"' in (SITE / "explorer.html").read_text()
