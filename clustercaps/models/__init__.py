"""Networks from images to logits, by name and by class.

Exports the registry (`list_models`, `create_model`, `get_preset`, `list_pretrained`,
`from_pretrained`), the class of every network, base classes for your own networks, and the size of
a network (`count_parameters`, `memory_estimate`).
"""

from clustercaps.models.affine import AffineCapsuleNet, AffineCNN, DrawingClassifier
from clustercaps.models.base import (
    ImageClassifier,
    LengthClassifier,
    LinearClassifier,
    TrainingBatch,
)
from clustercaps.models.capsule_net import CapsuleNet
from clustercaps.models.class_capsules import ClassCapsuleNet
from clustercaps.models.cnns import BaselineCNN, ViewpointCNN
from clustercaps.models.memory import memory_estimate
from clustercaps.models.packaged import list_pretrained
from clustercaps.models.peers.ar_capsnet import ARCapsNet
from clustercaps.models.peers.capsnet import CapsNet
from clustercaps.models.peers.dcnet import DCNet
from clustercaps.models.peers.dcnet3 import DCNet3
from clustercaps.models.peers.efficient_capsnet import EfficientCapsNet
from clustercaps.models.peers.em_capsules import EMCapsNet
from clustercaps.models.peers.heinsen import HeinsenNet
from clustercaps.models.peers.hitnet import HitNet
from clustercaps.models.peers.inverted_attention import InvertedAttentionNet
from clustercaps.models.peers.kde_capsnet import KDECapsNet
from clustercaps.models.peers.kernel_capsnet import KernelCapsNet
from clustercaps.models.peers.matrix_capsules import MatrixCapsNet, MatrixDesign
from clustercaps.models.peers.ms_capsnet import MSCapsNet
from clustercaps.models.peers.self_routing import SelfRoutingNet
from clustercaps.models.peers.star_capsules import StarCapsReconstruction
from clustercaps.models.peers.vb_capsules import VBCapsNet
from clustercaps.models.preset import Preset
from clustercaps.models.registry import (
    count_parameters,
    create_model,
    from_pretrained,
    get_preset,
    list_models,
)
from clustercaps.models.stack import CapsuleStack
from clustercaps.utils.preprocessing import Preprocessing

__all__ = [
    "ARCapsNet",
    "AffineCNN",
    "AffineCapsuleNet",
    "BaselineCNN",
    "CapsNet",
    "CapsuleNet",
    "CapsuleStack",
    "ClassCapsuleNet",
    "DCNet",
    "DCNet3",
    "DrawingClassifier",
    "EMCapsNet",
    "EfficientCapsNet",
    "HeinsenNet",
    "HitNet",
    "ImageClassifier",
    "InvertedAttentionNet",
    "KDECapsNet",
    "KernelCapsNet",
    "LengthClassifier",
    "LinearClassifier",
    "MSCapsNet",
    "MatrixCapsNet",
    "MatrixDesign",
    "Preprocessing",
    "Preset",
    "SelfRoutingNet",
    "StarCapsReconstruction",
    "TrainingBatch",
    "VBCapsNet",
    "ViewpointCNN",
    "count_parameters",
    "create_model",
    "from_pretrained",
    "get_preset",
    "list_models",
    "list_pretrained",
    "memory_estimate",
]
