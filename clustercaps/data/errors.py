"""The exception for unusable data, and imports of optional packages."""

from importlib import import_module
from typing import Any

from clustercaps.utils.extras import naming_extra


class DataError(ValueError):
    """A file, folder or dataset that cannot be used: what is wrong, what to do."""

    def __init__(self, message: str) -> None:
        # A DataLoader raises the error of a worker process again, with the worker's whole
        # traceback as its message; the message itself is at the end.
        if message.startswith("Caught DataError in DataLoader worker"):
            message = message.rstrip().rpartition(f"{__name__}.DataError: ")[2]
        super().__init__(message)


def need(module: str, purpose: str) -> Any:
    """Import an optional package; the error names the extra to install.

    Args:
        module: name of the module, such as `PIL.Image`.
        purpose: what it is needed for; completes "cannot ...".
    """
    try:
        with naming_extra():
            return import_module(module)
    except ImportError as error:
        raise DataError(f"cannot {purpose}: {error}") from error
