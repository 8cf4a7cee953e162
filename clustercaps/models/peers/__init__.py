"""Capsule systems from other papers, one file per system."""

from clustercaps.models.peers import (
    ar_capsnet,
    capsnet,
    dcnet,
    dcnet3,
    efficient_capsnet,
    em_capsules,
    heinsen,
    hitnet,
    inverted_attention,
    kde_capsnet,
    kernel_capsnet,
    maxmin_capsnet,
    ms_capsnet,
    nair,
    self_routing,
    star_capsules,
    vb_capsules,
)
from clustercaps.models.preset import Preset

# In chronological order.
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
    **self_routing.PRESETS,
    **ar_capsnet.PRESETS,
    **star_capsules.PRESETS,
    **heinsen.PRESETS,
    **inverted_attention.PRESETS,
    **efficient_capsnet.PRESETS,
}
