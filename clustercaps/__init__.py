"""Capsule networks for PyTorch: non-iterative cluster routing and related methods.

- `cc.layers`: building blocks, such as `ClusterCapsules2d`, `CapsuleConv2d` and `PrimaryCapsules`
- `cc.routing`: every routing, as a class (`EMRouting`) and as a function (`em_route`)
- `cc.functional`: the same functions, and squashing, without parameters or modules
- `cc.losses`: margin, spread, centripetal and reconstruction loss
- `cc.models`: networks by name (`create_model`) and by class, and their memory estimates
- `cc.data`: datasets, preprocessing and augmentation
- `cc.training`: `train(settings, out)` and the files of a run
- `cc.figures`: votes, routing weights and reconstructions of an image, as matplotlib figures
- `cc.sklearn`: networks as a scikit-learn classifier
- `cc.testing`: checks for your own routings and layers

Names are imported on first use, so that `clustercaps --help` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import clustercaps.data as data
    import clustercaps.figures as figures
    import clustercaps.functional as functional
    import clustercaps.layers as layers
    import clustercaps.losses as losses
    import clustercaps.models as models
    import clustercaps.routing as routing
    import clustercaps.sklearn as sklearn
    import clustercaps.testing as testing
    import clustercaps.training as training
    from clustercaps.layers import CapsuleConv2d, ClusterCapsules2d, RoutingTrace
    from clustercaps.models import create_model, from_pretrained, list_models, memory_estimate
    from clustercaps.routing import create_routing, list_routings

__version__ = "0.2.0"

__all__ = [
    "CapsuleConv2d",
    "ClusterCapsules2d",
    "RoutingTrace",
    "create_model",
    "create_routing",
    "data",
    "figures",
    "from_pretrained",
    "functional",
    "layers",
    "list_models",
    "list_routings",
    "losses",
    "memory_estimate",
    "models",
    "routing",
    "sklearn",
    "testing",
    "training",
]

# Public name -> the module that exports it. The other names are modules.
_HOME = {
    "CapsuleConv2d": "layers",
    "ClusterCapsules2d": "layers",
    "RoutingTrace": "layers",
    "create_model": "models",
    "create_routing": "routing",
    "from_pretrained": "models",
    "list_models": "models",
    "list_routings": "routing",
    "memory_estimate": "models",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"clustercaps.{_HOME[name]}"), name)
    if name in __all__:
        return import_module(f"clustercaps.{name}")
    raise AttributeError(f"module 'clustercaps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
