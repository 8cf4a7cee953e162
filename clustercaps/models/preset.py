"""A registered network: a class with settings of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clustercaps.models.base import ImageClassifier


@dataclass(frozen=True)
class Preset:
    """A class of networks with settings of its own.

    Attributes:
        network: The class.
        summary: What it is, in a few words.
        settings: Arguments of the class that differ from its defaults.
        reconstruction: Whether it is our reading of a system whose paper or code leaves parts
            open; no published number is claimed for it.
    """

    network: type[ImageClassifier]
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    reconstruction: bool = False
