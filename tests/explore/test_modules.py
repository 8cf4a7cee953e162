"""ES modules joined into one script."""

from pathlib import Path

import pytest
from helpers.javascript import Run

from clustercaps.explore.assemble import FOLDER
from clustercaps.explore.modules import ModuleError, bundle


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return folder / "main.js"


MODULES = {
    "main": """
import { twice as double, START } from "./a.js";
import {
  thrice,
} from "./b.js";
const own = 1;
export const result = [double(START), thrice(own)];
""",
    "a": """
const own = 2;
export const START = 5;
export function twice(x) { return own * x; }
""",
    "b": """
import { twice } from "./a.js";
const own = 3;
function thrice(x) { return twice(x) - 2 + own - x + 1; }
export { thrice };""",
}


def test_modules_are_joined_in_the_order_of_their_imports(tmp_path: Path) -> None:
    script = bundle(write(tmp_path, **MODULES))
    assert script.index("// a.js") < script.index("// b.js") < script.index("// main.js")
    assert script.count("// a.js") == 1
    assert "import" not in script
    assert "export " not in script
    assert "const { twice: double, START } = module_0;" in script


def test_modules_keep_their_own_names(tmp_path: Path, run_js: Run) -> None:
    main = write(tmp_path, **MODULES)
    assert run_js(str(main), "return exported.result;") == [10, 3]


BAD = {
    "imports other, which a.js does not export": ('import { other } from "./a.js";\n', "let x;\n"),
    "import each other: main.js -> a.js -> main.js": (
        'import { x } from "./a.js";\nexport const y = 1;\n',
        'import { y } from "./main.js";\nexport const x = y;\n',
    ),
    "which is not a file": ('import { x } from "./missing.js";\n', ""),
    "only relative paths": ('import { x } from "react";\n', ""),
    "cannot join 'export default": ("export default 3;\n", ""),
    "cannot join 'export *": ('export * from "./a.js";\n', ""),
    "cannot join 'import * as": ('import * as a from "./a.js";\n', ""),
    "cannot join 'import(": ('const late = import("./a.js");\n', ""),
    "exports a name twice": ("export const x = 1;\nexport { x };\n", ""),
    "would end the script": ('const text = "</script>";\n', ""),
}


@pytest.mark.parametrize("reason", BAD)
def test_what_cannot_be_joined_fails_the_build(reason: str, tmp_path: Path) -> None:
    main, other = BAD[reason]
    with pytest.raises(ModuleError) as error:
        bundle(write(tmp_path, main=main, a=other))
    assert reason in str(error.value)


def test_the_page_uses_every_module() -> None:
    """A module that nothing imports would be left over."""
    joined = bundle(FOLDER / "engine" / "worker.js") + bundle(FOLDER / "page" / "main.js")
    for path in (*FOLDER.glob("engine/*.js"), *FOLDER.glob("page/**/*.js")):
        assert f"// {path.name}\n" in joined, path
