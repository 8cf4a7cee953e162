"""What an exported file says about its network; without torch.

ONNX files have it in their metadata, `.pt2` files in their extra files: each entry is JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercaps import __version__
from clustercaps.utils.preprocessing import Preprocessing

# Names of the input and the output of the network in an ONNX file.
INPUT, OUTPUT = "images", "logits"
PLAIN, FUSED = "plain", "fused"
ENTRIES = ("model", "class_names", "preprocessing", "operators", "clustercaps_version")


@dataclass(frozen=True)
class Card:
    """Facts that a file needs to classify images.

    Args:
        model: Name of the network.
        preprocessing: What it expects of an image, and its class names.
        operators: "plain" if it has only operators of its format, "fused" if loading it needs
            `import clustercaps.kernels`.
        version: Version of the package that wrote it.
    """

    model: str
    preprocessing: Preprocessing
    operators: str = PLAIN
    version: str = __version__

    def to_texts(self) -> dict[str, str]:
        """The entries of the file."""
        preprocessing = self.preprocessing.to_plain()
        facts = {
            "model": self.model,
            "class_names": preprocessing.pop("class_names"),
            "preprocessing": preprocessing,
            "operators": self.operators,
            "clustercaps_version": self.version,
        }
        return {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items()}

    @classmethod
    def from_texts(cls, texts: Mapping[str, str], source: str) -> "Card":
        """What `to_texts` gave; `source` names the file in errors."""
        facts: dict[str, Any] = {}
        for name in ENTRIES:
            if not texts.get(name):
                raise ValueError(
                    f"{source} does not say its {name}; pass a file that `clustercaps export` wrote"
                )
            try:
                facts[name] = json.loads(texts[name])
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{source}: its {name} is no JSON; export it again") from error
        content, names = facts["preprocessing"], facts["class_names"]
        if not isinstance(content, dict) or not isinstance(names, list) or not names:
            raise ValueError(f"{source}: expected class names and preprocessing; export it again")
        preprocessing = Preprocessing.from_plain({**content, "class_names": names}, source)
        rest = (facts["operators"], facts["clustercaps_version"])
        return cls(str(facts["model"]), preprocessing, *map(str, rest))
