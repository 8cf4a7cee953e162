"""A stand-in for torchvision, which timm imports: every name that is asked for is an empty class.

There is not always a torchvision for the torch at hand, and what is tested of timm needs none.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Anything(type):
    """A class whose attributes in capitals, as those of an enumeration, are their own names."""

    def __getattr__(cls, name: str) -> str:
        if name.isupper():
            return name
        raise AttributeError(name)


class Stub(ModuleType):
    """A package in which every name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, Anything(name, (), {}))
        return self.__dict__[name]


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torchvision and everything below it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def without_torchvision() -> Iterator[None]:
    """Let `import torchvision` work meanwhile, if it is not installed."""
    finder = Finder()
    missing = importlib.util.find_spec("torchvision") is None
    if missing:
        sys.meta_path.append(finder)
    yield
    if missing:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
