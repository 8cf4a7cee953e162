"""Every number in the paper's tables, as data: `paper.json` next to this file."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def paper() -> dict[str, Any]:
    """The paper's tables; see the keys of `paper.json`.

    Errors and accuracies are percentages. Parameter counts are text as printed, with "~" where the
    paper calls them approximate and "(7)" for an ensemble of seven. Entries that the paper omits
    are omitted here. Misprints are kept; docs/cluster-routing.md lists them. One part is not from
    the paper: "omitted" lists systems that it could have compared with, as their authors report
    them.
    """
    text = files("clustercaps.experiments").joinpath("paper.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content
