"""Run modules of the explorer on JSON, in Node or in a page of Chromium."""

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clustercaps.explore.assemble import FOLDER
from clustercaps.explore.modules import bundle

# Calls `body` with the module's exports as `exported` and the parsed `data`; the result is JSON in
# which typed arrays are base64 texts of float32.
WRAPPER = """
(async () => {{
"use strict";
{script}
const data = JSON.parse({data});
const encode = (key, value) => {{
  if (!ArrayBuffer.isView(value)) return value;
  const raw = new Uint8Array(Float32Array.from(value).buffer);
  let text = "";
  for (let n = 0; n < raw.length; n += 8192) {{
    text += String.fromCharCode(...raw.subarray(n, n + 8192));
  }}
  return {{ float32: btoa(text) }};
}};
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const floats = (text) => new Float32Array(bytes(text).buffer);
const result = await (async () => {{ {body} }})();
return JSON.stringify(result ?? null, encode);
}})()
"""

Run = Callable[..., Any]


def expression(modules: str, body: str, data: Any) -> str:
    """One expression, a promise of the JSON of what `body` returns.

    Args:
        modules: Paths in the folder of the explorer, separated by spaces.
        body: Statements that return a value.
        data: What they know as `data`.
    """
    script = bundle(*(FOLDER / module for module in modules.split()))
    return WRAPPER.format(script=script, body=body, data=json.dumps(json.dumps(data)))


def decode(text: str) -> Any:
    """The result of `expression`, with typed arrays as tensors."""

    def hook(found: dict[str, Any]) -> Any:
        if set(found) != {"float32"}:
            return found
        return torch.from_numpy(np.frombuffer(base64.b64decode(found["float32"]), "<f4").copy())

    return json.loads(text, object_hook=hook)


def encode(tensor: Tensor) -> str:
    """A tensor for `floats` in `body`."""
    return base64.b64encode(tensor.detach().float().contiguous().numpy().tobytes()).decode()


def in_node(folder: Path) -> Run:
    """Run in Node, with files in a folder of the test."""
    node = shutil.which("node")
    assert node is not None

    def run(modules: str, body: str, data: Any = None) -> Any:
        file = folder / "run.js"
        text = expression(modules, body, data).strip()
        file.write_text(f"{text}.then((text) => process.stdout.write(text));\n", encoding="utf-8")
        done = subprocess.run([node, str(file)], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return decode(done.stdout)

    return run
