"""Trained weights that ship with the package: `create_model("m1", pretrained="fashion-mnist")`.

Each is a finished run without its checkpoint, in `weights/MODEL-DATA`: its settings
(`settings.json`), its result (`result.json`), and the network (`model`).
`python -m clustercaps.training.package RUN` adds one.
"""

from pathlib import Path

from clustercaps.utils.errors import unknown

WEIGHTS = Path(__file__).with_name("weights")
RESULT = "result.json"


def list_pretrained() -> list[str]:
    """All packaged weights, as "model:data"."""
    return sorted(":".join(path.parent.name.split("-", 1)) for path in WEIGHTS.glob(f"*/{RESULT}"))


def pretrained_folder(model: str, data: str | bool) -> Path:
    """The folder of packaged weights.

    Args:
        model: A name from `list_models()`.
        data: The dataset they were trained on; True if there is only one.
    """
    there = [name.partition(":")[2] for name in list_pretrained() if name.startswith(f"{model}:")]
    if not there:
        known = ", ".join(list_pretrained()) or "none"
        raise ValueError(f"there are no packaged weights for {model}; available: {known}")
    if data is True:
        if len(there) > 1:
            raise ValueError(
                f"{model} has weights for several datasets ({', '.join(there)}); name one, for "
                f"example pretrained={there[0]!r}"
            )
        data = there[0]
    if data not in there:
        raise ValueError(unknown(f"dataset for weights of {model}", str(data), there))
    return WEIGHTS / f"{model}-{data}"


def find_pretrained(name: str) -> Path | None:
    """The folder for "model:data"; None if the name does not have this form."""
    model, colon, data = name.partition(":")
    if not colon or "/" in model or Path(name).exists():
        return None
    return pretrained_folder(model, data)
