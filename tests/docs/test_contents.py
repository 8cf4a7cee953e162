"""Every page is in the navigation, and every public module in the reference."""

import re
from pathlib import Path

import clustercaps as cc

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
SETTINGS = (ROOT / "mkdocs.yml").read_text()


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"^ +- (?:[^#\n]*: )?([\w/-]+\.md)$", SETTINGS, re.M))
    written = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    # Pages of the root are tested by the strict build.
    assert written <= listed


def test_every_public_module_has_a_page_in_the_reference() -> None:
    public = [name for name in cc.__all__ if hasattr(getattr(cc, name), "__all__")]
    assert len(public) >= 9
    for name in [*public, "kernels"]:
        page = (DOCS / "reference" / f"{name}.md").read_text()
        assert f"::: clustercaps.{name}\n" in page
        assert f"[`clustercaps.{name}`]({name}.md)" in (DOCS / "reference/index.md").read_text()


def test_root_files_are_not_copied() -> None:
    for name in ("changelog.md", "contributing.md", "security.md", "kernel.md"):
        assert not (DOCS / name).exists()
