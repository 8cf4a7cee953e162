"""Building blocks of capsule networks: primary capsules, votes, capsule layers, norms, decoders."""

from clustercaps.layers.activation import CapsuleActivation
from clustercaps.layers.cluster import CapsuleConv2d, ClusterCapsules2d, RoutingTrace
from clustercaps.layers.decoders import (
    ConvolutionalDecoder,
    DenseDecoder,
    FullyConnectedDecoder,
    UpsamplingDecoder,
)
from clustercaps.layers.gaussian_process import ClassProcesses
from clustercaps.layers.inverted import InvertedCapsules, InvertedCapsules2d
from clustercaps.layers.matrix import (
    MatrixClassCapsules,
    MatrixConvCapsules,
    PrimaryMatrixCapsules,
)
from clustercaps.layers.norm import MapNorm
from clustercaps.layers.primary import PrimaryCapsules
from clustercaps.layers.resnet import ResNetFront, ResNetStem
from clustercaps.layers.votes import CoordinateAddition, MatrixVotes, VectorVotes
from clustercaps.layers.windows import Windows

__all__ = [
    "CapsuleActivation",
    "CapsuleConv2d",
    "ClassProcesses",
    "ClusterCapsules2d",
    "ConvolutionalDecoder",
    "CoordinateAddition",
    "DenseDecoder",
    "FullyConnectedDecoder",
    "InvertedCapsules",
    "InvertedCapsules2d",
    "MapNorm",
    "MatrixClassCapsules",
    "MatrixConvCapsules",
    "MatrixVotes",
    "PrimaryCapsules",
    "PrimaryMatrixCapsules",
    "ResNetFront",
    "ResNetStem",
    "RoutingTrace",
    "UpsamplingDecoder",
    "VectorVotes",
    "Windows",
]
