"""What a checkpoint belongs to: the settings and the data of its run."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clustercaps.data import FolderImages, Images
from clustercaps.training.settings import TrainSettings, from_json
from clustercaps.utils.json_files import json_text


@dataclasses.dataclass(frozen=True)
class Identity:
    """Settings of a run, and a digest of each of its sets of images."""

    settings: TrainSettings
    data: Mapping[str, str]

    @classmethod
    def of(
        cls,
        settings: TrainSettings,
        train: Images | FolderImages,
        test: Images | FolderImages,
    ) -> "Identity":
        """The identity of a run with these images."""
        return cls(settings, {"training": data_digest(train), "test": data_digest(test)})

    def to_plain(self) -> dict[str, Any]:
        """The identity as JSON can hold it."""
        return {"settings": dataclasses.asdict(self.settings), "data": dict(self.data)}

    def differences(self, stored: Mapping[str, Any], source: str) -> str:
        """How a stored identity differs from this one; empty if it does not."""
        theirs = from_json(json_text(stored.get("settings")), f"the header of {source}")
        found = [] if theirs == self.settings else [changed_settings(theirs, self.settings)]
        data = stored.get("data")
        for part, digest in self.data.items():
            if not isinstance(data, Mapping) or data.get(part) != digest:
                found.append(f"the {part} images are not the same")
        return "; ".join(found)


def changed_settings(stored: TrainSettings, asked: TrainSettings) -> str:
    """How the stored settings of a run differ from the requested ones."""
    return "; ".join(
        f"{name} was {value!r}, now {getattr(asked, name)!r}"
        for name, value in vars(stored).items()
        if value != getattr(asked, name)
    )


def data_digest(images: Images | FolderImages) -> str:
    """A digest of pixels and labels; of streamed images, of file names and labels."""
    digest = hashlib.sha256()
    if isinstance(images, Images):
        digest.update(as_bytes(images.pixels))
    else:
        digest.update("\0".join(images.class_names).encode(errors="surrogateescape"))
        digest.update(images.file_names())
    digest.update(as_bytes(images.labels))
    return f"{len(images)} images, sha256 {digest.hexdigest()}"


def tensor_digest(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    """A digest of named tensors and texts."""
    digest = hashlib.sha256(json_text(texts, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(as_bytes(tensor))
    return digest.hexdigest()


def as_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, without a copy if it is in memory and contiguous."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    # As uint8: numpy has no bfloat16.
    return flat.view(dtype=torch.uint8).numpy().data
