"""Every network by name."""

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

from clustercaps.layers.cluster import CapsuleConv2d
from clustercaps.layers.inverted import InvertedCapsules2d
from clustercaps.layers.self_routing import SelfRoutingClasses
from clustercaps.models.affine import AffineCapsuleNet, AffineCNN
from clustercaps.models.base import ImageClassifier
from clustercaps.models.capsule_net import CapsuleNet
from clustercaps.models.class_capsules import ClassCapsuleNet
from clustercaps.models.cnns import BaselineCNN, ViewpointCNN
from clustercaps.models.locate import NETWORK, locate
from clustercaps.models.packaged import pretrained_folder
from clustercaps.models.peers import PEERS
from clustercaps.models.peers.em_capsules import PAPER as EM_PAPER
from clustercaps.models.preset import CLUSTER_ROUTING_PAPER, Preset
from clustercaps.models.pretrained import read_config
from clustercaps.models.transfer import with_in_chans
from clustercaps.routing import Routing
from clustercaps.utils.arguments import check_arguments
from clustercaps.utils.errors import unknown
from clustercaps.utils.sizes import pair

# Networks for 32x32 images read one's own at this size: photos need more than 32.
OWN_SIZE = {"own": 64}
# A head on all positions of a larger image fits a small folder and nothing else.
POOLED = {"global_pool": "avg"}
# Datasets of the paper's main table.
FOUR = ("smallnorb", "fashion-mnist", "svhn", "cifar10")
RECONSTRUCTION_WEIGHT = (
    "The paper does not give the weight of the reconstruction loss; 0.005 is our choice."
)


def _m(votes: int, dim: int) -> Preset:
    return Preset(
        CapsuleNet,
        f"C4K{votes}D{dim}, 5 capsule layers, 4 channels",
        {"channels": 4, "clusters": 1, "votes": votes, "dim": dim},
        paper=CLUSTER_ROUTING_PAPER,
        img_size=32,
        data=FOUR,
        sizes=OWN_SIZE,
        own_settings=POOLED,
    )


def _s(clusters: int, votes: int, dim: int) -> Preset:
    return Preset(
        CapsuleNet,
        f"N{clusters}K{votes}D{dim}, 5 capsule layers, 1 channel",
        {"channels": 1, "clusters": clusters, "votes": votes, "dim": dim},
        paper=CLUSTER_ROUTING_PAPER,
        img_size=32,
        data=FOUR,
        sizes=OWN_SIZE,
        own_settings=POOLED,
    )


PRESETS: dict[str, Preset] = {
    "m1": _m(votes=5, dim=6),
    "m2": _m(votes=5, dim=8),
    "m3": _m(votes=8, dim=16),
    "m4": _m(votes=8, dim=24),
    "s1": _s(clusters=4, votes=4, dim=13),
    "s2": _s(clusters=4, votes=4, dim=16),
    "s3": _s(clusters=8, votes=8, dim=16),
    "s4": _s(clusters=8, votes=8, dim=32),
    "baseline_cnn": Preset(
        BaselineCNN,
        "5 convolutions of 256, layer norm",
        paper=CLUSTER_ROUTING_PAPER,
        img_size=32,
        data=FOUR,
        sizes=OWN_SIZE,
    ),
    "viewpoint_cnn": Preset(
        ViewpointCNN,
        "CNN of Hinton et al. 2018 for novel viewpoints",
        paper=EM_PAPER,
        choices="The recipes are those of the networks of cluster routing.",
        img_size=32,
        data=("smallnorb",),
        sizes=OWN_SIZE,
    ),
    "imagenet_m4": Preset(
        CapsuleNet,
        "ResNet stem, then M4",
        {**_m(votes=8, dim=24).settings, "stem": "resnet", "num_classes": 1000},
        paper=CLUSTER_ROUTING_PAPER,
        choices="The paper does not give the strides of the stem; these are those of a ResNet.",
        img_size=224,
        data=("imagenet",),
    ),
    "affine_capsules": Preset(
        AffineCapsuleNet,
        "C4K8D4, 3 capsule layers, upsampling decoder",
        paper=CLUSTER_ROUTING_PAPER,
        choices="The paper calls it C4K4D32, but only C4 K8 D4 gives the printed parameters. "
        + RECONSTRUCTION_WEIGHT,
        img_size=28,
        data=("mnist",),
    ),
    "affine_cnn": Preset(
        AffineCNN,
        "3 convolutions, upsampling decoder",
        paper=CLUSTER_ROUTING_PAPER,
        choices=RECONSTRUCTION_WEIGHT,
        img_size=28,
        data=("mnist",),
    ),
    "class_capsules": Preset(
        ClassCapsuleNet,
        "C4K5D8, one capsule per class, decoder",
        paper=CLUSTER_ROUTING_PAPER,
        choices="The paper fixes only M-variant 2 with ten capsules in the last layer; strides and "
        "padding are our choice. " + RECONSTRUCTION_WEIGHT,
        img_size=28,
        data=("mnist",),
    ),
    **PEERS,
}

NETWORKS = {preset.network.__name__: preset.network for preset in PRESETS.values()}


def list_models(pattern: str = "*") -> list[str]:
    """Names of the registered networks that match a glob pattern."""
    return [name for name in PRESETS if fnmatch(name, pattern)]


def get_preset(name: str) -> Preset:
    """The registered network with this name."""
    if name not in PRESETS:
        raise KeyError(unknown("model", name, PRESETS))
    return PRESETS[name]


def check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Raise an error for an unknown name, or for settings that its network cannot have."""
    check_arguments(get_preset(name).network, settings, f"model {name!r}")


def create_model(name: str, *, pretrained: str | bool = False, **settings: Any) -> ImageClassifier:
    """Build a network, with initial weights or with weights that ship with the package.

    Args:
        name: A name from `list_models()`.
        pretrained: The dataset on which the packaged weights were trained, such as
            "fashion-mnist"; True if there is only one. Such a network is in eval mode; another
            `num_classes` or `in_chans` changes it as in `from_pretrained`.
        **settings: Arguments of the network's class: `num_classes`, `in_chans`, `img_size`, and
            for capsule networks `channels` (C), `clusters` (N), `votes` (K), `dim` (D), `routing`;
            for those of the paper's main table also `global_pool`.
    """
    check_settings(name, settings)
    preset = get_preset(name)
    if pretrained:
        return _create_pretrained(pretrained_folder(name, pretrained) / NETWORK, settings)
    return preset.network(**{"img_size": preset.img_size, **preset.settings, **settings})


def _create_pretrained(folder: Path, settings: dict[str, Any]) -> ImageClassifier:
    changes = {key: settings.pop(key, None) for key in ("num_classes", "in_chans")}
    model = from_pretrained(folder, **changes)
    if "img_size" in settings:
        settings["img_size"] = pair(settings["img_size"])
    for name, value in settings.items():
        trained = model.img_size if name == "img_size" else model.settings.get(name)
        if value != trained:
            raise ValueError(
                f"the packaged weights are for {name}={trained!r}, not {value!r}; remove {name}, "
                "or build the network without pretrained"
            )
    return model


def count_parameters(name: str, **settings: Any) -> int:
    """Number of parameters of a registered network, without allocating them."""
    with torch.device("meta"):
        model = create_model(name, **settings)
    return sum(parameter.numel() for parameter in model.parameters())


def most_children(model: ImageClassifier) -> int:
    """Largest number of children per parent over all layers; 0 without capsules.

    For cluster routing these are vote clusters. The number depends on the image size if a parent
    receives votes from a whole feature map.
    """
    counts = [0]
    for module in model.modules():
        if isinstance(module, Routing):
            counts.append(module.children_count)
        elif isinstance(module, CapsuleConv2d):
            counts.append(module.in_channels * module.clusters)
        elif isinstance(module, InvertedCapsules2d):
            counts.append(module.in_types * module.kernel_size**2)
        elif isinstance(module, SelfRoutingClasses):
            counts.append(module.weight.shape[0])
    return max(counts)


def from_pretrained(
    name: str | Path,
    *,
    num_classes: int | None = None,
    in_chans: int | None = None,
    map_location: str = "cpu",
    **download: Any,
) -> ImageClassifier:
    """Load a network of any class, in eval mode.

    Args:
        name: A folder that `save_pretrained` wrote, the folder of a finished run, packaged weights
            such as "m1:fashion-mnist", or a model on the Hugging Face Hub, as "user/repo" or
            "user/repo@revision".
        num_classes: Another number of classes gives the network a new head with initial weights;
            its class names are dropped.
        in_chans: For another number of colour channels, the kernels that read the image are spread
            over the new channels (`with_in_chans`); the preprocessing is dropped.
        map_location: The device of the network.
        **download: For the Hub: `revision`, `cache_dir`, `force_download`, `local_files_only` and
            `token`.
    """
    folder = locate(name, **download)
    architecture = str(read_config(folder)[0].get("architecture"))
    if architecture not in NETWORKS:
        raise ValueError(f"{folder}: {unknown('architecture', architecture, NETWORKS)}")
    model = NETWORKS[architecture].from_pretrained(folder, map_location=map_location)
    if in_chans is not None and in_chans != model.in_chans:
        model = with_in_chans(model, in_chans)
    if num_classes is not None and num_classes != model.num_classes:
        model.reset_classifier(num_classes)
    return model
