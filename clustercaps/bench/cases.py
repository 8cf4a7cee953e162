"""What is timed: a network, or one of its layers, on random images of one size."""

from collections.abc import Callable
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
CPU = torch.device("cpu")
# Slowest first. On the CPU, Triton is only interpreted.
CPU_BACKENDS = ("reference", "chunked", "compiled", "cpu")
ACCELERATOR_BACKENDS = ("reference", "chunked", "compiled", "triton")
# These compute the votes again in the backward pass; the others store them.
RECOMPUTING = ("cpu", "chunked", "triton")


@dataclass(frozen=True)
class Options:
    """The options from the command line."""

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
    # Every network on images of the size of its paper, instead of `size`.
    published_size: bool = False
    device: torch.device = CPU

    def case(self, model: str) -> "Case":
        """The network on images of the chosen size: grey for M1, colour otherwise."""
        in_chans = self.in_chans or (1 if model == "m1" else 3)
        return Case(model, in_chans, self.size, self.batch)


@dataclass(frozen=True)
class Case:
    """A network and its images.

    Args:
        model: A name from `clustercaps.list_models()`.
        in_chans: Colour channels.
        size: Height and width of the images.
        batch: Batch size.
        layer: One layer of the network, starting at 1; 0 is the whole network.
        changes: Names and values of settings that differ from the preset.
    """

    model: str
    in_chans: int
    size: int
    batch: int
    layer: int = 0
    changes: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """The name of the network, and of the layer if it is one."""
        return f"{self.model} layer {self.layer}" if self.layer else self.model

    @property
    def input(self) -> str:
        """The shape of the input as text."""
        return f"{self.batch}x{self.in_chans}x{self.size}x{self.size}"

    def network(self) -> ImageClassifier:
        """The whole network with the same initial weights every time."""
        torch.manual_seed(0)
        shape = {"num_classes": CLASSES, "in_chans": self.in_chans, "img_size": self.size}
        settings: dict[str, Any] = {**shape, **dict(self.changes)}
        return create_model(self.model, **settings)


@dataclass(frozen=True)
class Workload:
    """A module with its input, ready to run forward, or forward and backward.

    Args:
        module: The module to time.
        x: Its input; requires a gradient if training would need one.
        target: Labels of the images, or a gradient of the output.
    """

    module: nn.Module
    x: Tensor
    target: Tensor

    def forward(self) -> None:
        """Run the forward pass without gradients."""
        with torch.no_grad():
            self.module(self.x)

    def training_step(self) -> None:
        """Run forward, loss and backward into newly allocated gradients; no optimizer."""
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
        """The same for the first image only."""
        return Workload(self.module, self.x[:1].detach(), self.target[:1])

    def calls(self) -> dict[str, Callable[[], None]]:
        """What can be timed."""
        return {
            "forward": self.forward,
            "training step": self.training_step,
            "one image": self.one_image().forward,
        }

    def to(self, device: torch.device) -> "Workload":
        """The same on a device."""
        x = self.x.detach().to(device).requires_grad_(self.x.requires_grad)
        return Workload(self.module.to(device), x, self.target.to(device))


def build(case: Case, backend: str, device: torch.device = CPU) -> Workload:
    """A case with one backend; every backend and device gets the same weights and images."""
    network = case.network()
    use_backend(network, backend)
    draw = torch.Generator().manual_seed(1)
    if not case.layer:
        x = torch.rand(case.batch, case.in_chans, case.size, case.size, generator=draw)
        target = torch.randint(CLASSES, (case.batch,), generator=draw)
        return Workload(network, x, target).to(device)
    layer = capsule_layers(network)[case.layer - 1]
    assert layer.in_size is not None
    shape = (case.batch, layer.in_channels, layer.in_dim, *layer.in_size)
    x = torch.randn(shape, generator=draw)
    shape = (case.batch, layer.out_channels, layer.out_dim, *layer.out_size(layer.in_size))
    # The gradient of an image is not needed.
    target = torch.randn(shape, generator=draw)
    return Workload(layer, x.requires_grad_(case.layer > 1), target).to(device)


def capsule_layers(module: nn.Module) -> list[ClusterCapsules2d]:
    """The capsule layers of a module, or the module itself if it is one."""
    return [layer for layer in module.modules() if isinstance(layer, ClusterCapsules2d)]


def use_backend(module: nn.Module, backend: str) -> None:
    """Force a backend for every capsule layer."""
    for layer in capsule_layers(module):
        layer.backend = backend


def require_kernel(word: str) -> None:
    """Raise an error if the fused CPU kernel, which this benchmark measures, cannot be used."""
    try:
        kernels.choose("cpu", "cpu")
    except RuntimeError as error:
        raise ValueError(
            f"bench {word} needs the fused kernel: {error}; `clustercaps kernels` shows what is "
            "missing"
        ) from error


def backends(compiled: bool, device: torch.device = CPU) -> tuple[list[str], list[str]]:
    """Backends to time, the reference first, and a note for each skipped one.

    Args:
        compiled: Whether to include `torch.compile`.
        device: Where they run.
    """
    names, notes = ["reference"], []
    for name in (CPU_BACKENDS if device.type == "cpu" else ACCELERATOR_BACKENDS)[1:]:
        if name == "compiled" and not compiled:
            notes.append("compiled: skipped, --compiled includes it (tens of seconds per shape)")
            continue
        try:
            # Builds the kernel if necessary, so that no measurement includes a build.
            names.append(kernels.choose(name, device.type))
        except RuntimeError as error:
            notes.append(f"{name}: skipped, {error}")
    return names, notes
