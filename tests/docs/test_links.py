"""Links that are written for a code host, on the site."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("links", ROOT / "docs/_site/links.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "uri", "written", "expected"),
    [
        ("docs/data.md", "data.md", "explorer.md", "explorer.md"),
        ("docs/data.md", "data.md", "../docs/systems.md#em", "systems.md#em"),
        ("docs/data.md", "data.md", "../CHANGELOG.md", "changelog.md"),
        ("docs/data.md", "data.md", "../README.md", "index.md"),
        ("docs/data.md", "data.md", "../results/demo.json", "files/results/demo.json"),
        ("docs/data.md", "data.md", "../results/", "source/results/index.md"),
        (
            *("docs/systems.md", "systems.md", "../clustercaps/routing/em.py"),
            "source/clustercaps/routing/em.py.md",
        ),
        (
            *("CONTRIBUTING.md", "contributing.md", "docs/_site/links.py"),
            "source/docs/_site/links.py.md",
        ),
        ("docs/reference/index.md", "reference/index.md", "../faq.md", "../faq.md"),
        ("SECURITY.md", "security.md", "docs/data.md", "data.md"),
        ("docs/data.md", "data.md", "https://example.org/data.md", "https://example.org/data.md"),
        ("docs/data.md", "data.md", "#splits", "#splits"),
        # For the strict build to report.
        ("docs/data.md", "data.md", "missing.md", "missing.md"),
    ],
)
def test_links_lead_to_the_site(
    links: ModuleType, source: str, uri: str, written: str, expected: str
) -> None:
    assert links.rewrite(f"[text]({written})", source, uri, ROOT) == f"[text]({expected})"


def test_code_is_left_alone(links: ModuleType) -> None:
    page = "`[a](../CHANGELOG.md)`\n\n```\n[b](../CHANGELOG.md)\n```\n\n[c](../CHANGELOG.md)\n"
    changed = links.rewrite(page, "docs/data.md", "data.md", ROOT)
    assert changed == page.replace("[c](../CHANGELOG.md)", "[c](changelog.md)")


def test_comments_for_the_site_are_shown(links: ModuleType) -> None:
    page = "<!-- site: [all](../results/) -->\n<!-- other -->"
    changed = links.rewrite(page, "docs/data.md", "data.md", ROOT)
    assert changed == "[all](source/results/index.md)\n<!-- other -->"


def test_only_files_outside_docs_are_added(links: ModuleType) -> None:
    page = "[a](data.md) [b](../results/demo.json) [c](../CHANGELOG.md) `[d](../LICENSE)`"
    assert links.targets(page, "docs/faq.md", ROOT) == {"results/demo.json"}
