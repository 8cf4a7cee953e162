"""The capsule systems that the paper compares with, and newer ones: one file per system."""

from clustercaps.models.peers import (
    capsnet,
    dcnet,
    dcnet3,
    hitnet,
    inverted_attention,
    kde_capsnet,
    kernel_capsnet,
    maxmin_capsnet,
    ms_capsnet,
    nair,
)
from clustercaps.models.preset import Preset

PEERS: dict[str, Preset] = {
    **capsnet.PRESETS,
    **nair.PRESETS,
    **maxmin_capsnet.PRESETS,
    **hitnet.PRESETS,
    **dcnet.PRESETS,
    **dcnet3.PRESETS,
    **ms_capsnet.PRESETS,
    **inverted_attention.PRESETS,
    **kernel_capsnet.PRESETS,
    **kde_capsnet.PRESETS,
}
