"""Save and load networks: settings as JSON, weights as safetensors, never pickle."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import PyTorchModelHubMixin, hf_hub_download
from torch import Tensor, nn

from clustercaps.models.arguments import check_arguments
from clustercaps.utils.files import alone_in
from clustercaps.utils.json_files import read_json
from clustercaps.utils.tensor_files import misfits, read_tensors, write_tensors

Model = TypeVar("Model", bound="Pretrained")

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"
# Start of the names of folders for files that are being written.
STAGING = ".saving-"

MODEL_CARD = """---
{{ card_data }}
---

# {{ architecture }}

A network of the `clustercaps` library, capsule networks for PyTorch,
with {{ parameters }} parameters.

```python
import clustercaps as cc

model = cc.from_pretrained("path/to/this/folder")
```

Built with: {{ settings }}

The method: Zhao and Cheng, "Capsule networks with non-iterative cluster routing", Neural Networks
143, 2021. State here on which data the weights were trained, how long, and how they were tested.
"""


class Pretrained(
    PyTorchModelHubMixin,
    library_name="clustercaps",
    tags=["capsule-network", "image-classification"],
    license="mit",
    model_card_template=MODEL_CARD,
):
    """`save_pretrained` and `from_pretrained` for networks with JSON-serialisable arguments."""

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments with which the network was built."""
        assert isinstance(self._hub_mixin_config, dict)
        return self._hub_mixin_config

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Write `config.json`, `model.safetensors` and a model card into a folder.

        Files are written to a temporary folder and then moved, so that an interrupted save leaves
        no incomplete file. With `push_to_hub`, the model is also uploaded.
        """
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        settings = self.settings
        card = {
            "architecture": type(self).__name__,
            "settings": ", ".join(f"{key}={value!r}" for key, value in settings.items()),
            "parameters": f"{sum(p.numel() for p in self.parameters()):,}",  # type: ignore[attr-defined]
        }
        with alone_in(folder) as alone:
            if alone:
                remove_unfinished_saves(folder)
            staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=folder))
            try:
                super().save_pretrained(
                    staging,
                    config={"architecture": type(self).__name__, **settings},
                    model_card_kwargs=card,
                )
                if (folder / CARD_FILE).exists():
                    # The user may have edited the model card.
                    (staging / CARD_FILE).unlink()
                for file in sorted(staging.iterdir()):
                    os.replace(file, folder / file.name)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        if push_to_hub:
            return self.push_to_hub(repo_id or folder.name, **push_to_hub_kwargs)
        return None

    def _save_pretrained(self, save_directory: Path) -> None:
        model: Any = getattr(self, "module", self)
        write_tensors(save_directory / WEIGHTS_FILE, model.state_dict(), {"format": "pt"})

    @classmethod
    def from_pretrained(
        cls: type[Model], pretrained_model_name_or_path: str | Path, **kwargs: Any
    ) -> Model:
        """Load a network from a folder or from the Hub, with its weights.

        The network is in eval mode.
        """
        folder = Path(pretrained_model_name_or_path)
        if folder.is_dir():
            config = read_config(folder)
            saved_as = config.pop("architecture", cls.__name__)
            if saved_as != cls.__name__:
                raise ValueError(
                    f"{folder / CONFIG_FILE} describes a {saved_as}, not a {cls.__name__}; "
                    "use clustercaps.from_pretrained(folder), which selects the class"
                )
            check_arguments(cls, config, str(folder / CONFIG_FILE))
        elif folder.exists() or folder.is_absolute():
            raise FileNotFoundError(
                f"{folder} is not a folder; pass the folder that save_pretrained wrote"
            )
        return super().from_pretrained(str(folder), **kwargs)

    @classmethod
    def _from_pretrained(
        cls: type[Model],
        *,
        model_id: str,
        map_location: str = "cpu",
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        # huggingface-hub 0.x always passes both. The second has had no effect since 0.26.
        proxies: dict[str, str] | None = None,
        resume_download: bool | None = None,
        **settings: Any,
    ) -> Model:
        # The method of the Hub falls back to pickled weights; this one reads only safetensors.
        if Path(model_id).is_dir():
            weights = Path(model_id) / WEIGHTS_FILE
        else:
            # 1.0 and later refuse the argument.
            older: dict[str, Any] = {"proxies": proxies} if proxies else {}
            weights = Path(
                hf_hub_download(
                    repo_id=model_id,
                    filename=WEIGHTS_FILE,
                    revision=revision,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                    token=token,
                    **older,
                )
            )
        # Without memory first: wrong settings may ask for more than there is.
        try:
            with torch.device("meta"):
                outline = cls(**settings)
        # RuntimeError: sizes whose product overflows.
        except (ValueError, KeyError, RuntimeError) as error:
            why = error.args[0] if error.args else error
            raise ValueError(f"{weights.with_name(CONFIG_FILE)}: {why}") from error
        assert isinstance(outline, nn.Module)
        saved = read_weights(weights, outline)
        model = cls(**settings)
        assert isinstance(model, nn.Module)
        model.load_state_dict(saved)
        model.to(map_location).eval()
        return model


def read_config(folder: Path) -> dict[str, Any]:
    """The settings that `save_pretrained` stored in a folder."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; pass the folder that save_pretrained wrote")
    return read_json(path)


def read_weights(path: Path, model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a safetensors file; lists all that do not match a model in the error."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; pass the folder that save_pretrained wrote")
    saved, _ = read_tensors(path, "copy or download it again")
    problems = misfits(model.state_dict(), saved)
    if problems:
        raise ValueError(f"{path} does not match this {type(model).__name__}: {problems}")
    return saved


def remove_unfinished_saves(folder: Path) -> None:
    """Delete what killed processes left in a folder while they saved a network."""
    for leftover in folder.glob(f"{STAGING}*"):
        shutil.rmtree(leftover, ignore_errors=True)
