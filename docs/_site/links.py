"""Where the relative links of a page lead on the site.

Pages are written for a code host: links are relative to the file, and may lead to code, results or
files at the root of the repository. On the site, pages link to pages, data files are copied to
`files/`, and code is shown on pages of its own below `source/`.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

# Files outside docs/ that are pages of the site.
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "clustercaps/kernels/README.md": "kernel.md",
}
# Links to README lead to the first page, which says the same.
ALIASES = {**ROOT_PAGES, "README.md": "index.md"}
DATA = {".cff", ".csv", ".ipynb", ".json", ".jsonl", ".pdf", ".png", ".svg"}

CODE = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)|(?P<tick>`+)[^`].*?(?P=tick)", re.S | re.M)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(?=[)\s#])")
# Shown on the site only: a code host hides comments.
ONLY_HERE = re.compile(r"<!-- site: (.*?) -->", re.S)


def source_of(uri: str) -> str:
    """The path in the repository of a page of the site."""
    for path, page in ROOT_PAGES.items():
        if page == uri:
            return path
    return f"docs/{uri}"


def in_docs(path: str) -> bool:
    """Whether MkDocs copies this path by itself: all of docs/ but the code of the site."""
    return path.startswith("docs/") and not path.startswith("docs/_site/")


def uri_of(path: str, is_folder: bool) -> str:
    """The place on the site of a path in the repository."""
    if path in ALIASES:
        return ALIASES[path]
    if in_docs(path):
        return path.removeprefix("docs/")
    if is_folder:
        return f"source/{path}/index.md"
    return f"files/{path}" if Path(path).suffix in DATA else f"source/{path}.md"


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply a change to a page, except to its code blocks and inline code."""
    parts, done = [], 0
    for code in CODE.finditer(text):
        parts += [change(text[done : code.start()]), code[0]]
        done = code.end()
    return "".join([*parts, change(text[done:])])


def targets(text: str, source: str, root: Path) -> set[str]:
    """Paths in the repository, outside docs/, to which a page links."""
    found: set[str] = set()

    def look(part: str) -> str:
        for link in LINK.findall(part):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
            if (root / path).exists() and path not in ALIASES and not in_docs(path):
                found.add(path)
        return part

    outside_code(text, look)
    return found


def rewrite(text: str, source: str, uri: str, root: Path) -> str:
    """A page with its links changed to those of the site.

    Args:
        text: The page in Markdown.
        source: Its path in the repository, such as `docs/data.md`.
        uri: Its place on the site, such as `data.md`.
        root: The repository.
    """

    def moved(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        # A link that leads nowhere stays as it is, and the strict build reports it.
        if not (root / path).exists():
            return link[1]
        there = uri_of(path, (root / path).is_dir())
        return posixpath.relpath(there, posixpath.dirname(uri) or ".")

    shown = outside_code(text, lambda part: ONLY_HERE.sub(r"\1", part))
    return outside_code(shown, lambda part: LINK.sub(moved, part))
