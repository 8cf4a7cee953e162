"""Debian's Chromium, which opens pages and records errors and requests."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.javascript import Run, decode, expression

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# These never leave the browser.
INSIDE = ("data:", "blob:", "about:")


@contextmanager
def start_chromium() -> Iterator["Browser"]:
    """A browser without a window."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.fail("chromium is not installed; `make test-browser` installs it")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail("playwright is not installed; run `make test-browser`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watched_page(browser: "Browser", path: Path | None = None) -> Iterator["Page"]:
    """A page that must log no error and ask for nothing but its own file.

    Args:
        browser: From `start_chromium`.
        path: The file to open; an empty page by default.
    """
    context = browser.new_context()
    own = path.resolve().as_uri() if path else "about:blank"
    errors: list[str] = []
    requests: list[str] = []
    try:
        page = context.new_page()
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        context.on("request", lambda request: requests.append(request.url))
        page.goto(own)
        yield page
        assert errors == []
        asked = [url for url in requests if url.partition("#")[0] != own]
        assert [url for url in asked if not url.startswith(INSIDE)] == []
    finally:
        context.close()


def in_page(page: "Page") -> Run:
    """Run modules in a page, as `in_node` does in Node."""

    def run(modules: str, body: str, data: object = None) -> object:
        return decode(page.evaluate(expression(modules, body, data)))

    return run
