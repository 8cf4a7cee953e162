"""Every network in timm's registry: `import clustercaps.timm`, then `timm.create_model`.

    import timm
    import clustercaps.timm

    model = timm.create_model("clustercaps_m1", pretrained=True, num_classes=5)
    maps = timm.create_model("clustercaps_m1", features_only=True, out_indices=(1, 4))

Names are `clustercaps_NAME`: timm takes a slash for a model on the Hub, and a dot for the tag of
weights. Packaged weights have their dataset as tag, as in "clustercaps_m1.fashion-mnist".

`import clustercaps` alone does not import timm, which is not a dependency.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers import CapsuleConv2d
from clustercaps.models import CapsuleNet, create_model, get_preset, list_models
from clustercaps.models.locate import WEIGHTS_FILE, locate
from clustercaps.models.packaged import list_pretrained
from clustercaps.models.pretrained import read_config
from clustercaps.utils.sizes import ImageBatch

try:
    from timm.models import generate_default_cfgs, register_model, resolve_pretrained_cfg
    from timm.models._features import FeatureInfo
except ImportError as error:
    raise ImportError(
        f"clustercaps.timm needs timm ({error}): pip install 'clustercaps[timm]'"
    ) from error

PREFIX = "clustercaps_"
# Options that timm's scripts pass to every network, with the value that means nothing. Heads read
# all positions, unless a network has `global_pool` itself.
OFF = {"drop_rate": 0.0, "drop_path_rate": 0.0, "drop_block_rate": 0.0, "global_pool": ""}

FeatureMap = Float[Tensor, "batch chans height width"]


class CapsuleFeatures(nn.Module):
    """The capsules of some layers as feature maps: what `features_only=True` gives.

    Args:
        model: A network whose layers are to be used; its head is not.
        out_indices: Which layers, from 0; all by default.

    Attributes:
        feature_info: Channels, stride and name of each map, as timm describes them.
    """

    def __init__(self, model: CapsuleNet, out_indices: Sequence[int] | None = None) -> None:
        super().__init__()
        self.stem, self.layers = model.stem, model.capsules.layers
        count = len(self.layers)
        chosen = tuple(range(count)) if out_indices is None else tuple(out_indices)
        for index in chosen:
            if not -count <= index < count:
                raise ValueError(f"out_indices must be from {-count} to {count - 1}, got {index}")
        self.out_indices = tuple(index % count for index in chosen)
        sides = model.img_size
        stride = 1 if self.stem is None else sides[0] // self.stem.out_size(sides)[0]
        info = []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, CapsuleConv2d)
            stride *= layer.stride
            chans = layer.out_channels * layer.out_dim
            info.append({"num_chs": chans, "reduction": stride, "module": f"layers.{number}"})
        self.feature_info = FeatureInfo(info, self.out_indices)

    def forward(self, images: ImageBatch) -> list[FeatureMap]:
        """One map per layer, with a channel per dimension of each capsule channel."""
        capsules = (images if self.stem is None else self.stem(images)).unsqueeze(1)
        maps = []
        for layer in self.layers:
            capsules = layer(capsules)
            maps.append(capsules.flatten(1, 2))
        return [maps[index] for index in self.out_indices]


def default_cfg(name: str, data: str = "") -> dict[str, Any]:
    """What timm knows about a network, or with `data` about its packaged weights."""
    preset = get_preset(name)
    side = preset.img_size
    # The head has one weight per position.
    known: dict[str, Any] = {"fixed_input_size": True, "interpolation": "bilinear", "crop_pct": 1.0}
    known |= {"classifier": "head", "license": "mit", "paper_name": preset.paper}
    defaults = inspect.signature(preset.network).parameters
    classes, chans = (
        preset.settings.get(key, defaults[key].default) for key in ("num_classes", "in_chans")
    )
    known |= {"num_classes": classes, "input_size": (chans, side, side)}
    if not data:
        # Nothing is known about the images.
        return {**known, "mean": (0.5,) * chans, "std": (0.5,) * chans}
    folder = locate(f"{name}:{data}")
    _, images = read_config(folder)
    assert images is not None
    return {
        **known,
        "file": str(folder / WEIGHTS_FILE),
        "num_classes": len(images.class_names),
        "label_names": images.class_names,
        "input_size": (images.in_chans, images.img_size, images.img_size),
        "mean": images.mean,
        "std": images.std,
    }


def entry(name: str) -> Callable[..., nn.Module]:
    """The function that timm calls to build a network."""

    def create(
        pretrained: bool = False,
        pretrained_cfg: Any = None,
        pretrained_cfg_overlay: dict[str, Any] | None = None,
        cache_dir: Any = None,
        features_only: bool = False,
        out_indices: Sequence[int] | None = None,
        **settings: Any,
    ) -> nn.Module:
        cfg = resolve_pretrained_cfg(PREFIX + name, pretrained_cfg, pretrained_cfg_overlay)
        chans, height, width = cfg.input_size
        usual = {"num_classes": cfg.num_classes, "in_chans": chans, "img_size": (height, width)}
        arguments = {**usual, **checked(name, settings)}
        model: Any = create_model(name, pretrained=pretrained and (cfg.tag or True), **arguments)
        model.train()
        if features_only:
            if not isinstance(model, CapsuleNet):
                raise ValueError(
                    f"{PREFIX}{name}: features_only is for m1 to m4, s1 to s4 and imagenet_m4"
                )
            model = CapsuleFeatures(model, out_indices)
        model.pretrained_cfg = model.default_cfg = cfg.to_dict()
        return model

    create.__name__ = create.__qualname__ = PREFIX + name
    create.__doc__ = get_preset(name).summary
    return create


def checked(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the network; options of timm that it does not have must be off."""
    has = inspect.signature(get_preset(name).network).parameters
    kept = {key: value for key, value in settings.items() if key in has or key not in OFF}
    for key, value in settings.items():
        if key not in kept and value != OFF[key]:
            raise ValueError(f"{PREFIX}{name} has no {key}, got {value!r}; leave it out")
    return kept


def register() -> None:
    """Add every network to timm's registry."""
    tagged = [each.split(":") for each in list_pretrained()]
    # Any: timm's own type of the values is wider, and mypy sees it only where timm is installed.
    cfgs: dict[str, Any] = {
        f"{PREFIX}{name}.{data}": default_cfg(name, data) for name, data in tagged
    }
    trained = {name for name, _ in tagged}
    cfgs |= {PREFIX + name: default_cfg(name) for name in list_models() if name not in trained}
    default_cfgs.update(generate_default_cfgs(cfgs))
    for name in list_models():
        register_model(entry(name))


# timm looks for this name in the module of a function that it registers.
default_cfgs: dict[str, Any] = {}
register()
