"""Building blocks of capsule networks.

Exports capsule layers (`ClusterCapsules2d`, `CapsuleConv2d` with any routing, matrix capsules,
attention, inverted dot-product attention, self-routing, Heinsen's routing), primary capsules,
votes, windows, norms, activations, decoders, ResNet stems and Gaussian processes over class
capsules.
"""

from clustercaps.layers.activation import CapsuleActivation
from clustercaps.layers.attention import AttentionCapsules2d
from clustercaps.layers.cluster import CapsuleConv2d, ClusterCapsules2d, RoutingTrace
from clustercaps.layers.decoders import (
    ConvolutionalDecoder,
    DenseDecoder,
    FullyConnectedDecoder,
    UpsamplingDecoder,
)
from clustercaps.layers.gaussian_process import ClassProcesses
from clustercaps.layers.heinsen import HeinsenCapsules
from clustercaps.layers.inverted import CapsuleLayerNorm, InvertedCapsules, InvertedCapsules2d
from clustercaps.layers.matrix import (
    CapsuleBatchNorm,
    MatrixClassCapsules,
    MatrixConvCapsules,
    MatrixLayer,
    PrimaryMatrixCapsules,
)
from clustercaps.layers.minimal_conv import MinimalConv2d
from clustercaps.layers.norm import MapNorm
from clustercaps.layers.primary import PrimaryCapsules
from clustercaps.layers.resnet import BasicBlock, ResNetFront, ResNetStem
from clustercaps.layers.self_routing import SelfRoutingCapsules2d, SelfRoutingClasses
from clustercaps.layers.votes import CoordinateAddition, MatrixVotes, VectorVotes
from clustercaps.layers.whole_map import WholeMapConv2d
from clustercaps.layers.windows import Windows, cut_windows

__all__ = [
    "AttentionCapsules2d",
    "BasicBlock",
    "CapsuleActivation",
    "CapsuleBatchNorm",
    "CapsuleConv2d",
    "CapsuleLayerNorm",
    "ClassProcesses",
    "ClusterCapsules2d",
    "ConvolutionalDecoder",
    "CoordinateAddition",
    "DenseDecoder",
    "FullyConnectedDecoder",
    "HeinsenCapsules",
    "InvertedCapsules",
    "InvertedCapsules2d",
    "MapNorm",
    "MatrixClassCapsules",
    "MatrixConvCapsules",
    "MatrixLayer",
    "MatrixVotes",
    "MinimalConv2d",
    "PrimaryCapsules",
    "PrimaryMatrixCapsules",
    "ResNetFront",
    "ResNetStem",
    "RoutingTrace",
    "SelfRoutingCapsules2d",
    "SelfRoutingClasses",
    "UpsamplingDecoder",
    "VectorVotes",
    "WholeMapConv2d",
    "Windows",
    "cut_windows",
]
