"""The names that users may rely on. A change here is a change for them: say so in the changelog."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import get_origin

import pytest
from torch import nn

import clustercaps as cc
from clustercaps.models import ImageClassifier
from clustercaps.routing import Routing

PUBLIC = {
    "clustercaps": """
        CapsuleConv2d ClusterCapsules2d RoutingTrace create_model create_routing data
        figures from_pretrained functional layers list_models list_routings losses memory_estimate
        models routing sklearn testing training
    """,
    "clustercaps.data": """
        SETS Augment DataError FolderImages Images Prepare SetInfo Statistics as_images cache_dir
        info is_own is_streamed load open_folder read_image statistics_of test_transform
        train_transform validation_split viewpoint_split
    """,
    "clustercaps.figures": "perturbations routing save transforms votes",
    "clustercaps.functional": """
        attention_route capsule_activation cluster_route dynamic_route em_route frem_route
        frms_route heinsen_route inverted_attention_route max_min_route routing_weights
        self_attention_route self_route squash squash_exponential squash_half squash_unsquared
        star_route vb_route vote_statistics
    """,
    "clustercaps.layers": """
        AttentionCapsules2d BasicBlock CapsuleActivation CapsuleBatchNorm CapsuleConv2d
        CapsuleLayerNorm ClassProcesses ClusterCapsules2d ConvolutionalDecoder CoordinateAddition
        DenseDecoder FullyConnectedDecoder HeinsenCapsules InvertedCapsules InvertedCapsules2d
        MapNorm MatrixClassCapsules MatrixConvCapsules MatrixLayer MatrixVotes MinimalConv2d
        PrimaryCapsules PrimaryMatrixCapsules ResNetFront ResNetStem RoutingTrace
        SelfRoutingCapsules2d SelfRoutingClasses UpsamplingDecoder VectorVotes WholeMapConv2d
        Windows cut_windows
    """,
    "clustercaps.losses": """
        centripetal_loss gaussian_kl margin_loss mask_capsules negative_elbo reconstruction_loss
        spread_loss spread_margin
    """,
    "clustercaps.models": """
        ARCapsNet AffineCNN AffineCapsuleNet BaselineCNN CapsNet CapsuleNet CapsuleStack
        ClassCapsuleNet DCNet DCNet3 DrawingClassifier EMCapsNet EfficientCapsNet HeinsenNet HitNet
        ImageClassifier InvertedAttentionNet KDECapsNet KernelCapsNet LengthClassifier
        LinearClassifier MSCapsNet MatrixCapsNet MatrixDesign Preprocessing Preset SelfRoutingNet
        StarCapsReconstruction
        TrainingBatch VBCapsNet ViewpointCNN count_parameters create_model from_pretrained
        get_preset list_models list_pretrained memory_estimate
    """,
    "clustercaps.routing": """
        EPS ROUTINGS AttentionRouting ClusterRouting DynamicRouting EMRouting FREMRouting
        FRMSRouting HeinsenRouting InvertedAttentionRouting MaxMinRouting Routed Routing
        SelfAttentionRouting SelfRouting StarRouting StarWeights UniformRouting VBRouting
        attention_route cluster_route create_routing dynamic_route em_route frem_route frms_route
        get_routing heinsen_route inverted_attention_route list_routings max_min_route
        routing_weights self_attention_route self_route star_route vb_route vote_statistics
    """,
    "clustercaps.sklearn": "CapsuleClassifier",
    "clustercaps.testing": """
        assert_close assert_competition assert_finite assert_matches_reference
        assert_order_does_not_matter assert_routing_contract draw_input equivariance_error
    """,
    "clustercaps.training": """
        RECIPE_NAMES RunFolder Score Stopped TrainSettings Trained draw_run resolve score train
        train_seeds
    """,
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    public = importlib.import_module(module)
    assert set(public.__all__) == set(PUBLIC[module].split())
    assert len(public.__all__) == len(set(public.__all__))
    for name in public.__all__:
        assert name in dir(public)
        assert getattr(public, name) is not None
        # In the tests' process everything is imported already, which must change nothing.
        part = public is cc and name in PUBLIC_PARTS
        assert isinstance(getattr(public, name), ModuleType) == part, name


PUBLIC_PARTS = [module.partition(".")[2] for module in PUBLIC if "." in module]


@pytest.mark.parametrize("part", PUBLIC_PARTS)
def test_parts_are_attributes_that_say_what_they_export(part: str) -> None:
    module = getattr(cc, part)
    assert module is importlib.import_module(f"clustercaps.{part}")
    assert part in cc.__all__
    assert "Exports " in (module.__doc__ or "")
    assert f"`cc.{part}`" in (cc.__doc__ or "")


def test_unknown_names_are_attribute_errors() -> None:
    for module in (cc, cc.training):
        assert not hasattr(module, "nonsense")


def test_names_are_imported_on_first_use() -> None:
    """The package alone loads no torch, and a part is there without an import of its own."""
    code = (
        "import sys, clustercaps as cc; print('torch' in sys.modules); "
        "print(cc.training.resolve.__module__, cc.training.score.__name__); "
        "import clustercaps.training.loop; print(cc.training.score.__name__, cc.losses.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "False",
        "clustercaps.training.settings",
        "score",
        "score",
        "clustercaps.losses",
    ]


def defined_in(package: ModuleType, kind: type) -> Iterator[type]:
    """Public classes of a kind that the modules of a package define."""
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, value in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
            # To Python 3.10, `Callable[...]` is a class.
            if (
                get_origin(value) is None
                and issubclass(value, kind)
                and value.__module__ == info.name
                and name[0] != "_"
            ):
                yield value


@pytest.mark.parametrize(
    ("package", "kind"),
    [(cc.layers, nn.Module), (cc.routing, Routing), (cc.models, ImageClassifier)],
    ids=["layers", "routings", "networks"],
)
def test_every_building_block_is_exported(package: ModuleType, kind: type) -> None:
    found = {value.__name__: value for value in defined_in(package, kind)}
    assert len(found) > 10
    for name, value in found.items():
        assert name in package.__all__
        assert getattr(package, name) is value


def test_every_routing_has_its_function_in_both_places() -> None:
    functions = {name for name in cc.routing.__all__ if name.endswith("_route")}
    # Uniform routing is cluster routing with constant weights.
    assert len(functions) == len(cc.list_routings()) - 1
    for name in functions:
        assert getattr(cc.functional, name) is getattr(cc.routing, name)
