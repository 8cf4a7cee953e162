"""What MkDocs does beside its own work: pages from all of the repository, explorer, equations."""

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from links import ROOT_PAGES, rewrite, source_of, targets, uri_of
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
# Written by `make docs` before MkDocs starts.
EXPLORER = ROOT / "build" / "explorer.html"
LANGUAGES = {".py": "python", ".js": "javascript", ".cpp": "cpp", ".h": "cpp", ".md": "markdown"}
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, the explorer, and every file to which a page links."""
    if not EXPLORER.is_file():
        raise PluginError(f"{EXPLORER} is missing: run `make docs`, which writes it first")
    files.append(File.generated(config, "live-explorer.html", abs_src_path=str(EXPLORER)))
    for path, uri in ROOT_PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    wanted: set[str] = set()
    for page in files.documentation_pages():
        wanted |= targets(page.content_string, source_of(page.src_uri), ROOT)
    for path in sorted(wanted):
        add(path, files, config)
    return files


def add(path: str, files: Files, config: MkDocsConfig) -> None:
    """Add a file of the repository; or a folder, as a list of its files."""
    place = ROOT / path
    uri = uri_of(path, place.is_dir())
    if files.get_file_from_path(uri) is not None:
        return
    options: dict[str, Any] = {}
    if place.is_dir():
        inside = [p for p in sorted(place.iterdir()) if p.is_file() and not p.name.startswith(".")]
        for each in inside:
            add(f"{path}/{each.name}", files, config)
        links = [f"- [`{p.name}`]({Path(p.name)})" for p in inside]
        options["content"] = shown(path, "\n".join(links))
    elif uri.endswith(".md"):
        language = LANGUAGES.get(place.suffix, "text")
        code = f'`````{language} linenums="1"\n{place.read_text().rstrip()}\n`````\n'
        options["content"] = shown(path, code)
    else:
        options["abs_src_path"] = str(place)
    files.append(File.generated(config, uri, **options))


def shown(path: str, body: str) -> str:
    """A page that shows a file or folder; the search leaves it out."""
    return f"---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# `{path}`\n\n{body}\n"


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change links to those of the site."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        # The list of a folder: its links are relative to the folder.
        folder = uri.removeprefix("source/").removesuffix("index.md")
        return rewrite(text, folder, uri, ROOT) if uri.endswith("/index.md") else text
    return rewrite(text, source_of(uri), uri, ROOT)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Equations as MathML, which browsers show without scripts or fonts of their own."""

    def equation(found: re.Match[str]) -> str:
        display = "block" if found[1] == "div" else "inline"
        return str(convert(html.unescape(found[2]).strip(), display=display))

    return EQUATION.sub(equation, content)
