"""Where weights are: a folder, a finished run, the package, or the Hugging Face Hub."""

import re
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

from clustercaps.models.packaged import find_pretrained

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
# The folder of the network in a run folder.
NETWORK = "model"
# user/repo, or user/repo@revision.
HUB_NAME = re.compile(r"(?P<repo>[\w][\w.-]*/[\w.-]+)(@(?P<revision>[\w./-]+))?")


def locate(name: str | Path, **download: Any) -> Path:
    """The folder with `config.json` and `model.safetensors`; downloads it if it is on the Hub.

    Args:
        name: A folder that `save_pretrained` wrote, the folder of a finished run, packaged weights
            such as "m1:fashion-mnist", or a model on the Hub, as "user/repo" or
            "user/repo@revision".
        **download: Arguments of `huggingface_hub.snapshot_download`.
    """
    packaged = find_pretrained(str(name))
    if packaged is not None:
        return packaged / NETWORK
    path = Path(name)
    if path.is_dir():
        is_run = not (path / CONFIG_FILE).exists() and (path / NETWORK).is_dir()
        return path / NETWORK if is_run else path
    on_hub = HUB_NAME.fullmatch(str(name))
    # With a folder `runs` here, "runs/m1" is a mistyped path rather than a model on the Hub.
    if path.exists() or on_hub is None or path.parent.is_dir():
        raise FileNotFoundError(
            f"{name} is not a folder; pass a folder that save_pretrained wrote, a run, weights "
            "such as m1:fashion-mnist, or a model on the Hub as user/repo"
        )
    if on_hub["revision"]:
        download["revision"] = on_hub["revision"]
    return _download(on_hub["repo"], download)


def _download(repo: str, options: dict[str, Any]) -> Path:
    """Configuration and weights of a model on the Hub, of one commit, in the cache of the Hub."""
    try:
        files = [CONFIG_FILE, WEIGHTS_FILE]
        return Path(snapshot_download(repo, allow_patterns=files, **options))
    except RevisionNotFoundError as error:
        raise FileNotFoundError(
            f"{repo} on the Hub has no revision {options.get('revision')!r}"
        ) from error
    except RepositoryNotFoundError as error:
        raise FileNotFoundError(
            f"{repo} is neither a folder here nor a model on the Hub that you may read; check the "
            "name, or log in with `hf auth login`"
        ) from error
    # Versions of huggingface-hub raise errors of requests or httpx, which have no common base.
    except Exception as error:
        failed = f"{repo} is no folder here, and cannot be downloaded from the Hub"
        raise hub_error(failed, error) from error


def hub_error(failed: str, error: Exception) -> Exception:
    """An error of the Hub, whose message may have several lines, as one that has one.

    Args:
        failed: What failed; the start of the message.
        error: What the Hub raised.
    """
    why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    if isinstance(error, HFValidationError):
        return ValueError(f"{failed}: {why}")
    return ConnectionError(
        f"{failed} ({why}); check the connection, or log in with `hf auth login`"
    )
