"""Capsule networks for PyTorch: non-iterative cluster routing and its relatives.

Names are imported on first use, so that `clustercaps --help` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import clustercaps.data as data
    import clustercaps.functional as functional
    import clustercaps.testing as testing
    from clustercaps.layers.cluster import ClusterCapsules2d, RoutingTrace
    from clustercaps.models import create_model, from_pretrained, list_models
    from clustercaps.models.memory import memory_estimate
    from clustercaps.routing import create_routing, list_routings

__version__ = "0.1.0"

__all__ = [
    "ClusterCapsules2d",
    "RoutingTrace",
    "create_model",
    "create_routing",
    "data",
    "from_pretrained",
    "functional",
    "list_models",
    "list_routings",
    "memory_estimate",
    "testing",
]

# Public name -> the module that defines it; a module's own name stands for the module.
_HOME = {
    "ClusterCapsules2d": "layers",
    "RoutingTrace": "layers",
    "create_model": "models",
    "create_routing": "routing",
    "from_pretrained": "models",
    "list_models": "models",
    "list_routings": "routing",
    "memory_estimate": "models.memory",
}
_MODULES = ("data", "functional", "layers", "losses", "models", "routing", "testing")


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"clustercaps.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"clustercaps.{name}")
    raise AttributeError(f"module 'clustercaps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
