"""Save and load networks: settings as JSON, weights as safetensors, never pickle."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from huggingface_hub import ModelCard, PyTorchModelHubMixin
from torch import Tensor, nn

from clustercaps.models.card import model_card
from clustercaps.models.locate import CONFIG_FILE, WEIGHTS_FILE, hub_error, locate
from clustercaps.utils.arguments import check_arguments
from clustercaps.utils.files import alone_in
from clustercaps.utils.json_files import read_json
from clustercaps.utils.preprocessing import Preprocessing
from clustercaps.utils.tensor_files import misfits, read_tensors, write_tensors

Model = TypeVar("Model", bound="Pretrained")

# The key of `config.json` that is not an argument of the network.
PREPROCESSING = "preprocessing"
CARD_FILE = "README.md"
# Start of the names of folders for files that are being written.
STAGING = ".saving-"


class Pretrained(PyTorchModelHubMixin):
    """`save_pretrained` and `from_pretrained` for networks with JSON-serialisable arguments.

    Attributes:
        preprocessing: What the network expects of an image, and its class names; None if that is
            not known. It is saved with the weights.
    """

    preprocessing: Preprocessing | None = None

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
        model_card_kwargs: dict[str, Any] | None = None,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Write `config.json`, `model.safetensors` and a model card into a folder.

        Files are written to a temporary folder and then moved, so that an interrupted save leaves
        no incomplete file. A card that is there is kept: it may have been edited.

        Args:
            save_directory: The folder; created if missing.
            repo_id: Name on the Hub; by default that of the folder.
            push_to_hub: Also upload the model.
            model_card_kwargs: Arguments of `model_card`, or `text`, a card of one's own.
            **push_to_hub_kwargs: Arguments of `push_to_hub`.
        """
        config = {"architecture": type(self).__name__, **self.settings}
        if self.preprocessing is not None:
            self.check_preprocessing(self.preprocessing)  # type: ignore[attr-defined]
            config[PREPROCESSING] = self.preprocessing.to_plain()
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder) as alone:
            if alone:
                remove_unfinished_saves(folder)
            staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=folder))
            try:
                super().save_pretrained(staging, config=config, model_card_kwargs=model_card_kwargs)
                if (folder / CARD_FILE).exists():
                    (staging / CARD_FILE).unlink()
                for file in sorted(staging.iterdir()):
                    os.replace(file, folder / file.name)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        if push_to_hub:
            return self.push_to_hub(
                repo_id or folder.name, model_card_kwargs=model_card_kwargs, **push_to_hub_kwargs
            )
        return None

    def push_to_hub(
        self, repo_id: str, *, model_card_kwargs: dict[str, Any] | None = None, **kwargs: Any
    ) -> str:
        """Upload configuration, weights and model card to the Hub; returns the commit's address.

        Args:
            repo_id: Name on the Hub, as "user/repo".
            model_card_kwargs: Arguments of `model_card`, or `text`, a card of one's own.
            **kwargs: Arguments of `huggingface_hub.ModelHubMixin.push_to_hub`: `private`,
                `commit_message`, `token`, `branch`, `create_pr`, ...
        """
        card = {"name": repo_id, **(model_card_kwargs or {})}
        try:
            return super().push_to_hub(repo_id, model_card_kwargs=card, **kwargs)
        # Errors of requests or httpx, depending on the version.
        except Exception as error:
            raise hub_error(f"cannot upload to {repo_id}", error) from error

    def generate_model_card(self, *args: Any, text: str | None = None, **kwargs: Any) -> ModelCard:
        """A card of one's own as Markdown, or the one that `model_card` writes."""
        return model_card(cast(Any, self), *args, **kwargs) if text is None else ModelCard(text)

    def _save_pretrained(self, save_directory: Path) -> None:
        model: Any = getattr(self, "module", self)
        write_tensors(save_directory / WEIGHTS_FILE, model.state_dict(), {"format": "pt"})

    @classmethod
    def from_pretrained(
        cls: type[Model],
        pretrained_model_name_or_path: str | Path,
        *,
        map_location: str = "cpu",
        **download: Any,
    ) -> Model:
        """Load a network with its weights; it is in eval mode.

        Args:
            pretrained_model_name_or_path: What `locate` takes: a folder, a finished run, packaged
                weights, or a model on the Hub.
            map_location: The device of the network.
            **download: For the Hub: `revision`, `cache_dir`, `force_download`, `local_files_only`
                and `token`.
        """
        folder = locate(pretrained_model_name_or_path, **download)
        return cls._from_folder(folder).to(map_location).eval()

    @classmethod
    def _from_folder(cls, folder: Path) -> Any:
        config, preprocessing = read_config(folder)
        source = str(folder / CONFIG_FILE)
        saved_as = config.pop("architecture", cls.__name__)
        if saved_as != cls.__name__:
            raise ValueError(
                f"{source} describes a {saved_as}, not a {cls.__name__}; use "
                "clustercaps.from_pretrained, which selects the class"
            )
        check_arguments(cls, config, source)
        # Without memory first: wrong settings may ask for more than there is.
        try:
            with torch.device("meta"):
                outline: Any = cls(**config)
            if preprocessing is not None:
                outline.check_preprocessing(preprocessing)
        # RuntimeError: sizes whose product overflows.
        except (ValueError, KeyError, RuntimeError) as error:
            why = error.args[0] if error.args else error
            raise ValueError(f"{source}: {why}") from error
        saved = read_weights(folder / WEIGHTS_FILE, outline)
        model: Any = cls(**config)
        model.load_state_dict(saved)
        model.preprocessing = preprocessing
        return model


def read_config(folder: Path) -> tuple[dict[str, Any], Preprocessing | None]:
    """The settings that `save_pretrained` stored in a folder, and the preprocessing if it has one.

    The settings are the arguments of the network, and its class as "architecture".
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing; pass the folder of a finished run, or one that save_pretrained "
            "wrote"
        )
    config = read_json(path)
    stored = config.pop(PREPROCESSING, None)
    return config, None if stored is None else Preprocessing.from_plain(stored, str(path))


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
