"""An exported network that classifies image files; without torch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from clustercaps.export.card import Card
from clustercaps.export.pixels import read_input

BATCH = 64

Images = Float32[np.ndarray, "batch channels height width"]
Logits = Float32[np.ndarray, "batch classes"]


@dataclass(frozen=True)
class ExportedClassifier:
    """An exported network.

    Args:
        card: What its file says about it.
        run: Prepared images to logits.
    """

    card: Card
    run: Callable[[Images], Logits]

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the outputs."""
        return self.card.preprocessing.class_names

    def predict(self, paths: Sequence[Path]) -> Iterator[Float32[np.ndarray, " classes"]]:
        """Class probabilities of image files, one vector per file."""
        for start in range(0, len(paths), BATCH):
            part = paths[start : start + BATCH]
            logits = self.run(
                np.stack([read_input(path, self.card.preprocessing) for path in part])
            )
            if logits.shape != (len(part), len(self.class_names)):
                raise ValueError(
                    f"the network gives outputs of shape {logits.shape} for {len(part)} images and "
                    f"{len(self.class_names)} classes; export it again"
                )
            if not np.isfinite(logits).all():
                raise ValueError(
                    f"the output of the network is not finite for {part[0]} or one of the images "
                    "after it"
                )
            powers = np.exp(logits - logits.max(1, keepdims=True))
            yield from powers / powers.sum(1, keepdims=True)
