"""Optional packages, and the extra of clustercaps that installs them.

To add one: a line in `EXTRAS`, and the packages with their reasons in pyproject.toml.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

# Extra -> names under which its packages are imported.
EXTRAS = {
    "figures": ("matplotlib",),
    "train": ("accelerate", "requests", "PIL", "tqdm"),
    "export": ("onnxscript", "onnxruntime", "PIL"),
    "sklearn": ("sklearn",),
    "timm": ("timm",),
}
# Packages that are not called like their module.
PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn"}


def require(*extras: str) -> None:
    """Raise an error that says what to install, unless the packages of these extras are there.

    For commands, before any work.
    """
    missing = [
        (extra, module) for extra in extras for module in EXTRAS[extra] if not find_spec(module)
    ]
    if missing:
        # Two extras may share a package.
        modules = dict.fromkeys(module for _, module in missing)
        packages = ", ".join(PACKAGES.get(module, module) for module in modules)
        names = ",".join(sorted({extra for extra, _ in missing}))
        raise ModuleNotFoundError(f"not installed: {packages}; run: {command(names)}")


@contextmanager
def naming_extra() -> Iterator[None]:
    """Add to the error of a missing optional package what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        for extra, modules in EXTRAS.items():
            if error.name in modules:
                package = PACKAGES.get(error.name, error.name)
                said = f"not installed: {package}; run: {command(extra)}"
                raise ModuleNotFoundError(said, name=error.name) from error
        raise


def command(extras: str) -> str:
    """The command that installs extras, separated by commas."""
    return f"pip install 'clustercaps[{extras}]'"
