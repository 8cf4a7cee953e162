"""What a package index shows of README.md: its relative links lead nowhere there.

With a `Repository` in [project.urls] of pyproject.toml, links and images get its address at the tag
of the version, and the addresses of changelog, documentation and issues are added. Without one,
links become plain text and images are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# [text](target) and ![text](target), except for targets with a scheme and anchors.
RELATIVE_IMAGE = re.compile(r"!\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")
RELATIVE_LINK = re.compile(r"(?<!!)\[((?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]\((?![a-z]+:|#)([^)]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Sets `readme`, and adds to `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the [project] table."""
        init = (Path(self.root) / "clustercaps" / "__init__.py").read_text("utf-8")
        version = re.search(r'^__version__ = "(.+)"$', init, re.MULTILINE)
        assert version is not None
        repository = metadata["urls"].get("Repository", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, repository, f"v{version[1]}"),
        }
        if repository:
            metadata["urls"] |= {
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
                "Documentation": f"{repository}/tree/main/docs",
                "Issues": f"{repository}/issues",
            }


def absolute(text: str, repository: str, tag: str) -> str:
    """Markdown with relative links to a tag of a repository; without one, they are removed."""
    # Code is shown as it is written.
    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    code = {f"\0{number}\0": part for number, part in enumerate(parts) if number % 2}
    names = iter(code)
    text = "".join(next(names) if number % 2 else part for number, part in enumerate(parts))
    if repository:
        text = RELATIVE_IMAGE.sub(rf"![\1]({repository}/raw/{tag}/\2)", text)
        text = RELATIVE_LINK.sub(rf"[\1]({repository}/blob/{tag}/\2)", text)
    else:
        text = RELATIVE_IMAGE.sub("", text)
        text = RELATIVE_LINK.sub(r"\1", text)
    for name, part in code.items():
        text = text.replace(name, part)
    return text
