"""Join ES modules into one classic script, because a page opened from a file cannot import.

Each module becomes a function of its own, so that names of different modules never clash:

    const module_1 = (() => { const { a } = module_0; ...; return { b }; })();

Supported are named imports and exports that start in the first column; anything else is an error.
"""

import re
from pathlib import Path

IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"([^"]+)";[ \t]*\n', re.MULTILINE)
EXPORT = re.compile(
    r"^export\s+((?:async\s+)?function\s*\*?\s*|class\s+|const\s+|let\s+)([\w$]+)", re.MULTILINE
)
EXPORT_LIST = re.compile(r"^export\s*\{([^}]*)\};[ \t]*\n", re.MULTILINE)
# What is left after the known forms were replaced.
UNKNOWN = re.compile(r"^(?:import|export)\b.*|\bimport\s*\(.*", re.MULTILINE)


class ModuleError(ValueError):
    """The modules cannot be joined."""


def bundle(*entries: Path) -> str:
    """A script that runs modules and everything they import; their exports are in `exported`."""
    order: dict[Path, frozenset[str]] = {}
    parts: list[str] = []
    for entry in entries:
        _add(entry.resolve(), order, parts, ())
    spread = ", ".join(f"...module_{list(order).index(entry.resolve())}" for entry in entries)
    return "".join(parts) + f"const exported = {{ {spread} }};\n"


def _add(
    path: Path, order: dict[Path, frozenset[str]], parts: list[str], above: tuple[Path, ...]
) -> None:
    """Append a module after the modules that it imports."""
    if path in order:
        return
    if path in above:
        names = " -> ".join(each.name for each in (*above[above.index(path) :], path))
        raise ModuleError(f"the modules import each other: {names}")
    if not path.is_file():
        user = above[-1].name if above else "the page"
        raise ModuleError(f"{user} imports {path}, which is not a file")
    text = path.read_text(encoding="utf-8") + "\n"
    if "</script" in text.lower():
        raise ModuleError(f"{path.name} contains </script, which would end the script of the page")
    heads = []
    for names, source in IMPORT.findall(text):
        if not source.startswith("."):
            raise ModuleError(f"{path.name} imports {source!r}; only relative paths are supported")
        wanted = (path.parent / source).resolve()
        _add(wanted, order, parts, (*above, path))
        heads.append(_binding(path, wanted, names, order))
    body, exports = _without_exports(path, IMPORT.sub("", text))
    number = len(order)
    order[path] = frozenset(exports)
    parts.append(
        f"// {path.name}\nconst module_{number} = (() => {{\n{''.join(heads)}{body}"
        f"return {{ {', '.join(exports)} }};\n}})();\n"
    )


def _binding(path: Path, wanted: Path, names: str, order: dict[Path, frozenset[str]]) -> str:
    """An import as a declaration."""
    pairs = []
    for name in filter(None, (each.strip() for each in names.split(","))):
        original, _, local = name.partition(" as ")
        if original.strip() not in order[wanted]:
            raise ModuleError(
                f"{path.name} imports {original.strip()}, which {wanted.name} does not export"
            )
        pairs.append(f"{original.strip()}: {local.strip()}" if local else original)
    return f"const {{ {', '.join(pairs)} }} = module_{list(order).index(wanted)};\n"


def _without_exports(path: Path, text: str) -> tuple[str, list[str]]:
    """The text of a module without `export`, and the names that it exports."""
    exports = [name for _, name in EXPORT.findall(text)]
    for names in EXPORT_LIST.findall(text):
        exports += [name.strip() for name in names.split(",") if name.strip()]
    text = EXPORT_LIST.sub("", EXPORT.sub(r"\1\2", text))
    unknown = UNKNOWN.search(text)
    if unknown:
        raise ModuleError(
            f"{path.name}: cannot join {unknown.group().strip()!r}; use named imports and exports "
            "that start in the first column"
        )
    twice = {name for name in exports if exports.count(name) > 1}
    if twice or any(" as " in name for name in exports):
        raise ModuleError(f"{path.name} exports a name twice or under another name: {exports}")
    return text, exports
