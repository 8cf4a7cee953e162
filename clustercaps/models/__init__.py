"""The networks, by name (`create_model`) and by class."""

from clustercaps.models.affine import AffineCapsuleNet, AffineCNN
from clustercaps.models.base import ImageClassifier, LinearClassifier, TrainingBatch
from clustercaps.models.capsule_net import CapsuleNet
from clustercaps.models.class_capsules import ClassCapsuleNet
from clustercaps.models.cnns import BaselineCNN, ViewpointCNN
from clustercaps.models.registry import create_model, from_pretrained, get_preset, list_models

__all__ = [
    "AffineCNN",
    "AffineCapsuleNet",
    "BaselineCNN",
    "CapsuleNet",
    "ClassCapsuleNet",
    "ImageClassifier",
    "LinearClassifier",
    "TrainingBatch",
    "ViewpointCNN",
    "create_model",
    "from_pretrained",
    "get_preset",
    "list_models",
]
