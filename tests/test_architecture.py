"""The package is built in layers: a part imports only itself and the parts below it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "clustercaps"
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 300, 50

# Part -> parts that it may import, beside itself and `utils`.
BELOW: dict[str, set[str]] = {
    "utils": set(),
    "routing": set(),
    "losses": set(),
    "kernels": {"routing"},
    "layers": {"routing", "kernels", "losses"},
    "functional": {"routing", "layers"},
    "models": {"routing", "kernels", "layers", "losses"},
    "data": set(),
    "figures": {"routing", "layers", "losses", "models"},
    "training": {"routing", "kernels", "layers", "losses", "models", "data", "figures"},
}
BELOW["sklearn"] = {*BELOW["training"], "training"}
BELOW["experiments"] = {*BELOW["training"], "training"}
BELOW["bench"] = BELOW["explore"] = BELOW["export"] = BELOW["experiments"]
BELOW["testing"] = BELOW["timm"] = BELOW["models"] | {"models"}
BELOW["cli"] = {*BELOW, "experiments", "bench", "explore", "export"}
# `clustercaps` itself: its version, and names that it imports on first use.
ROOT = ""

FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)
FILES += [PACKAGE / f"{name}.py" for name in ("functional", "losses", "sklearn", "testing", "timm")]


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(node: ast.AST) -> list[str]:
    """Parts of the package that a statement imports."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [node.module]
        if node.module == "clustercaps":
            names = [f"clustercaps.{alias.name}" for alias in node.names]
    parts = [name.split(".") for name in names if name.split(".")[0] == "clustercaps"]
    return [words[1] if len(words) > 1 else ROOT for words in parts]


def imports_of(path: Path) -> tuple[set[str], set[str]]:
    """Modules that a file imports at its top, and those that its functions import."""
    tree = ast.parse(path.read_text())
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    inside = {id(child) for function in functions for child in ast.walk(function)}
    found: tuple[set[str], set[str]] = (set(), set())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found[id(node) in inside].add(node.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    part = part_of(path)
    allowed = {*BELOW[part], part, "utils", "__version__"}
    for node in ast.walk(ast.parse(path.read_text())):
        for name in imported(node):
            # The package's own name gives its version and its public names.
            if name != ROOT or part == "utils":
                assert name in allowed, f"{ast.unparse(node)}: {part} must not import {name!r}"


def test_every_part_has_its_place() -> None:
    parts = {part_of(path) for path in FILES}
    assert parts == set(BELOW), "say in BELOW what a new part may import"
    flat = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert flat == {"functional", "losses", "sklearn", "testing", "timm"}


def test_no_function_hides_an_import_to_break_a_cycle() -> None:
    """An import inside a function would be a cycle if it stood at the top of its file."""
    names = {
        path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in FILES
    }
    modules = {name.removesuffix(".__init__"): imports_of(path) for path, name in names.items()}

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        if start == goal:
            return True
        if start in seen or start not in modules:
            return False
        seen.add(start)
        return any(reaches(each, goal, seen) for each in modules[start][0])

    for name, (_, hidden) in modules.items():
        for each in hidden - {name}:
            assert not reaches(each, name, set()), f"{name} hides its import of {each}"


LIGHT = (
    "clustercaps.utils.files",
    "clustercaps.experiments.harness.store",
    "clustercaps.cli",
    "clustercaps.export.reading",
)


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_do_not_load_networks(module: str) -> None:
    code = f"import sys, {module}; print({{'torch', 'clustercaps.models'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


SOURCES = sorted(
    path
    for folder in (PACKAGE, PACKAGE.parent / "tests", PACKAGE.parent / "examples")
    for path in folder.rglob("*")
    if path.suffix in (".py", ".h", ".cpp", ".js", ".css")
)


def test_files_and_functions_are_short() -> None:
    too_long = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > MOST_LINES:
            too_long.append(f"{path}: {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)) if path.suffix == ".py" else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    too_long.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
    assert too_long == []
