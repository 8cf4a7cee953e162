"""The capsule systems that the paper compares with, and newer ones: one file per system."""

from clustercaps.models.peers import (
    ar_capsnet,
    capsnet,
    efficient_capsnet,
    heinsen,
    inverted_attention,
    self_routing,
)
from clustercaps.models.preset import Preset

PEERS: dict[str, Preset] = {
    **capsnet.PRESETS,
    **ar_capsnet.PRESETS,
    **efficient_capsnet.PRESETS,
    **heinsen.PRESETS,
    **inverted_attention.PRESETS,
    **self_routing.PRESETS,
}
