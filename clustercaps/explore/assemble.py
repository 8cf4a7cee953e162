"""Write the page: markup, style, scripts and content in one file that makes no request."""

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clustercaps.explore.modules import bundle
from clustercaps.utils.files import write_atomically

FOLDER = Path(__file__).parent
MOST_BYTES = 12_000_000

START = 'window.EXPLORER = JSON.parse(document.getElementById("explorer-data").textContent);\n'


def assemble(content: Mapping[str, Any]) -> str:
    """The page with this content."""
    script = scoped(START + bundle(FOLDER / "page" / "main.js"))
    worker = scoped(bundle(FOLDER / "engine" / "worker.js"))
    styles = sorted((FOLDER / "page").glob("*.css"))
    style = "".join(path.read_text(encoding="utf-8") for path in styles)
    if "</style" in style.lower():
        raise ValueError("the style of the page contains </style, which would end it early")
    parts = {
        "policy": policy(script, style),
        "style": f"<style>{style}</style>",
        "data": f'<script type="application/json" id="explorer-data">{as_data(content)}</script>',
        "script": f'<script type="text/plain" id="engine-worker">{worker}</script>\n'
        f"<script>{script}</script>",
    }
    page = (FOLDER / "page" / "index.html").read_text(encoding="utf-8")
    for name, text in parts.items():
        before, mark, after = page.partition(f"<!-- {name} -->")
        if not mark or mark in after:
            raise ValueError(f"page/index.html must contain {f'<!-- {name} -->'!r} exactly once")
        page = before + text + after
    return page


def scoped(script: str) -> str:
    """A script whose names do not become properties of the window."""
    return f'(() => {{\n"use strict";\n{script}}})();\n'


def as_data(content: Mapping[str, Any]) -> str:
    """JSON that cannot end the script element it is in, whatever its texts contain."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy(script: str, style: str) -> str:
    """The content security policy: this script and this style, and no request at all."""
    rules = {
        "default-src": "'none'",
        "script-src": digest(script),
        "style-src": digest(style),
        "worker-src": "blob:",
        "img-src": "data: blob:",
        "connect-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    text = "; ".join(f"{name} {value}" for name, value in rules.items())
    # An empty icon, because browsers ask a server for one otherwise.
    return (
        f'<meta http-equiv="Content-Security-Policy" content="{text}">\n'
        '<link rel="icon" href="data:,">'
    )


def digest(text: str) -> str:
    """How a content security policy names an inline script or style."""
    found = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{found}'"


def write_page(content: Mapping[str, Any], path: Path) -> int:
    """Write the page; returns its size in bytes, and raises an error if it is too large."""
    page = assemble(content)
    size = len(page.encode())
    if size > MOST_BYTES:
        networks = ", ".join(
            f"{network['id']} {len(json.dumps(network)) / 1e6:.1f} MB"
            for network in content["networks"]
        )
        raise ValueError(
            f"the page would have {size / 1e6:.1f} MB, the limit is {MOST_BYTES / 1e6:.0f} MB "
            f"({networks}); pass fewer or smaller networks"
        )
    write_atomically(path, page)
    return size
