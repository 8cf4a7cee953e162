"""What is timed: a network, or one of its layers, on random images of one size."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clustercaps import kernels
from clustercaps.layers.cluster import ClusterCapsules2d
from clustercaps.models import ImageClassifier, TrainingBatch, create_model

PAPER_MODELS = ("m1", "m2", "m3", "m4", "s1", "s2", "s3", "s4")
CLASSES = 10
# Slowest first. Triton is missing on purpose: everything here runs on CPU, where it is interpreted.
CPU_BACKENDS = ("reference", "chunked", "compiled", "cpu")


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    out: Path
    models: tuple[str, ...] = ("m1", "m3", "s4")
    size: int = 32
    batch: int = 64
    in_chans: int | None = None
    compiled: bool = False
    official: Path | None = None
    against: str | None = None
    rounds: int = 7
    seconds: float = 0.3
    quick: bool = False

    def case(self, model: str) -> "Case":
        """The network on the images asked for: gray for M1, as it is judged, colour otherwise."""
        in_chans = self.in_chans or (1 if model == "m1" else 3)
        return Case(model, in_chans, self.size, self.batch)


@dataclass(frozen=True)
class Case:
    """A network and its images.

    Args:
        model: A name from `clustercaps.list_models()`.
        in_chans: Colour channels.
        size: Height and width of the images.
        batch: How many at once.
        layer: One of the network's layers, from 1; 0 is the whole network.
        changes: Names and values of settings that differ from the preset's.
    """

    model: str
    in_chans: int
    size: int
    batch: int
    layer: int = 0
    changes: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """The network, and the layer if it is one."""
        return f"{self.model} layer {self.layer}" if self.layer else self.model

    @property
    def input(self) -> str:
        """The images' shape as people write it."""
        return f"{self.batch}x{self.in_chans}x{self.size}x{self.size}"

    def network(self) -> ImageClassifier:
        """The whole network with fresh weights, the same every time."""
        torch.manual_seed(0)
        shape = {"num_classes": CLASSES, "in_chans": self.in_chans, "img_size": self.size}
        settings: dict[str, Any] = {**shape, **dict(self.changes)}
        return create_model(self.model, **settings)


@dataclass(frozen=True)
class Workload:
    """A module with its input, ready to run forward, or forward and backward.

    Args:
        module: What is timed.
        x: Its input; requires a gradient where training would need one.
        target: Labels of the images, or a gradient of the module's output.
    """

    module: nn.Module
    x: Tensor
    target: Tensor

    def forward(self) -> None:
        """What inference does."""
        with torch.no_grad():
            self.module(self.x)

    def training_step(self) -> None:
        """Forward, loss and backward into fresh gradients; no optimiser."""
        self.module.zero_grad(set_to_none=True)
        self.x.grad = None
        if isinstance(self.module, ImageClassifier):
            batch = TrainingBatch(self.x, self.target, self.x)
            self.module.training_loss(batch)[0].mean().backward()
            return
        output = self.module(self.x)
        if self.target.is_floating_point():
            output.backward(self.target)
        else:
            cross_entropy(output, self.target).backward()

    def one_image(self) -> "Workload":
        """The same for the first image alone."""
        return Workload(self.module, self.x[:1].detach(), self.target[:1])


def build(case: Case, backend: str) -> Workload:
    """A case as one backend computes it; every backend gets the same weights and images."""
    network = case.network()
    use_backend(network, backend)
    draw = torch.Generator().manual_seed(1)
    if not case.layer:
        x = torch.rand(case.batch, case.in_chans, case.size, case.size, generator=draw)
        return Workload(network, x, torch.randint(CLASSES, (case.batch,), generator=draw))
    layer = capsule_layers(network)[case.layer - 1]
    assert layer.in_size is not None
    shape = (case.batch, layer.in_channels, layer.in_dim, *layer.in_size)
    x = torch.randn(shape, generator=draw)
    shape = (case.batch, layer.out_channels, layer.out_dim, *layer.out_size(layer.in_size))
    # Nobody asks for the gradient of an image.
    return Workload(layer, x.requires_grad_(case.layer > 1), torch.randn(shape, generator=draw))


def capsule_layers(module: nn.Module) -> list[ClusterCapsules2d]:
    """The capsule layers of a module, or the module itself if it is one."""
    return [layer for layer in module.modules() if isinstance(layer, ClusterCapsules2d)]


def use_backend(module: nn.Module, backend: str) -> None:
    """Force every capsule layer onto a backend."""
    for layer in capsule_layers(module):
        layer.backend = backend


def backends(compiled: bool) -> tuple[list[str], list[str]]:
    """Backends to time, the reference first, and a sentence for each that is left out.

    Args:
        compiled: Whether to wait for `torch.compile`.
    """
    names, notes = ["reference"], []
    for name in CPU_BACKENDS[1:]:
        if name == "compiled" and not compiled:
            notes.append("compiled: left out, --compiled includes it (tens of seconds per shape)")
            continue
        try:
            # Builds the kernel if need be, so that no measurement contains a build.
            names.append(kernels.choose(name, "cpu"))
        except RuntimeError as error:
            notes.append(f"{name}: left out, {error}")
    return names, notes
