"""The capsule systems that the paper compares with, and newer ones: one file per system."""

from clustercaps.models.peers import capsnet, em_capsules, star_capsules, vb_capsules
from clustercaps.models.preset import Preset

PEERS: dict[str, Preset] = {
    **capsnet.PRESETS,
    **em_capsules.PRESETS,
    **vb_capsules.PRESETS,
    **star_capsules.PRESETS,
}
