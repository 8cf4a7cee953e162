"""Every number that the paper prints in its tables, as data: `paper.json` beside this file."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def paper() -> dict[str, Any]:
    """The paper's tables; see the keys of `paper.json`.

    Errors and accuracies are percentages. Counts of parameters are text as printed, "~" where the
    paper says that they are approximate and "(7)" for an ensemble of seven. What the paper leaves
    out, it leaves out here. Its misprints are kept: docs/routing.md lists them. One part is not the
    paper's: "omitted", systems that it could have listed, as their authors report them.
    """
    text = files("clustercaps.experiments").joinpath("paper.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content
