"""The capsule systems that the paper compares with, and newer ones: one file per system."""

from clustercaps.models.peers import (
    capsnet,
    dcnet,
    dcnet3,
    em_capsules,
    hitnet,
    inverted_attention,
    kde_capsnet,
    kernel_capsnet,
    maxmin_capsnet,
    ms_capsnet,
    nair,
    star_capsules,
    vb_capsules,
)
from clustercaps.models.preset import Preset

PEERS: dict[str, Preset] = {
    **capsnet.PRESETS,
    **em_capsules.PRESETS,
    **vb_capsules.PRESETS,
    **kde_capsnet.PRESETS,
    **hitnet.PRESETS,
    **dcnet.PRESETS,
    **dcnet3.PRESETS,
    **ms_capsnet.PRESETS,
    **nair.PRESETS,
    **maxmin_capsnet.PRESETS,
    **kernel_capsnet.PRESETS,
    **inverted_attention.PRESETS,
    **star_capsules.PRESETS,
}
