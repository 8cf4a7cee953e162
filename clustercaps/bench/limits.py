"""Lower bounds for the time of a layer: what this machine needs for its arithmetic and its bytes.

The work is counted from shapes, the speeds of the machine are measured.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from clustercaps.bench.work import FLOAT32_BYTES
from clustercaps.kernels.peak import multiply_adds
from clustercaps.layers.cluster import ClusterCapsules2d

PASSES = ("forward", "backward")
# Operations per cluster, parent entry and position besides the K - 1 squares of the contrasts (and,
# backward, their K - 1 gradients). Both passes compute 1 / sqrt in 5; forward adds to two sums,
# backward finds the gradient of the centroid and the factor of those of the contrasts.
JUDGE = {"forward": 5 + 2, "backward": 5 + 5}
# Operations per parent entry and position. Forward: 1 / R, the capsule, and the norm. Backward:
# sums for the norm's gradients, and the gradient through the norm.
FINISH = {"forward": 3 + 1 + 6, "backward": 7 + 6}
# Rounds of multiply-adds that are timed at once, and the size of a copy that no cache can hold.
ROUNDS, COPIED_BYTES = 4_000_000, 2**27


@dataclass(frozen=True)
class Work:
    """What one pass of a layer has to do.

    Args:
        products: Multiply-adds of the products of votes, weights and gradients.
        others: Operations of statistics, routing and norm, per entry of a vector.
        bytes: Bytes of all tensors that it must read or write.
    """

    products: int
    others: int
    bytes: int


@dataclass(frozen=True)
class Speeds:
    """What the machine can do per second."""

    multiply_adds: float
    bytes: float


@dataclass(frozen=True)
class Limits:
    """Seconds that parts of the work take at full speed."""

    products: float
    others: float
    memory: float

    @property
    def bound(self) -> float:
        """The time below which no kernel can come that does this work.

        Products and other operations need the same units; bytes can be moved meanwhile.
        """
        return max(self.products + self.others, self.memory)

    @property
    def largest(self) -> str:
        """The part that takes longest."""
        parts = {"products": self.products, "others": self.others, "memory": self.memory}
        return max(parts, key=parts.__getitem__)


def work_of(layer: ClusterCapsules2d, batch: int, name: str, input_gradient: bool) -> Work:
    """The work of one pass; transforming the weights and gathering patches are not counted.

    Args:
        layer: The layer.
        batch: Images.
        name: "forward" or "backward" of a training step.
        input_gradient: Whether the backward pass needs the gradient of the input.
    """
    assert layer.in_size is not None
    height, width = layer.out_size(layer.in_size)
    parents = layer.out_channels * layer.out_dim * batch * height * width
    clusters, votes = layer.in_channels * layer.clusters, layer.votes
    macs = batch * height * width * layer.vote.weight.numel()
    inputs = batch * layer.in_channels * layer.in_dim * layer.in_size[0] * layer.in_size[1]
    weights = sum(parameter.numel() for parameter in layer.parameters())
    if name == "forward":
        # Reads input and weights; writes capsules before and after the norm, and the scale.
        moved, times, contrasts = inputs + weights + 3 * parents, 1, votes - 1
    else:
        # Reads the same, capsules, scale and gradient; writes gradients. Votes are computed again.
        moved = (1 + input_gradient) * inputs + 2 * weights + 3 * parents
        times, contrasts = 2 + input_gradient, 2 * (votes - 1)
    others = parents * (clusters * (contrasts + JUDGE[name]) + FINISH[name])
    return Work(times * macs, others, FLOAT32_BYTES * moved)


def limits(work: Work, speeds: Speeds) -> Limits:
    """The times of the parts of some work at the speeds of a machine."""
    return Limits(
        work.products / speeds.multiply_adds,
        work.others / speeds.multiply_adds,
        work.bytes / speeds.bytes,
    )


def measure_speeds(quick: bool, clock: Callable[[], float]) -> Callable[[], Speeds]:
    """A function that measures the speeds of this machine, with the threads of torch.

    Args:
        quick: Whether to measure for a moment only.
        clock: What to read the time from.
    """
    size = COPIED_BYTES // (1024 if quick else 1)
    rounds = ROUNDS // (64 if quick else 1)
    source, target = torch.zeros(2, size // FLOAT32_BYTES)

    def measure() -> Speeds:
        begin = clock()
        count = multiply_adds(rounds)
        middle = clock()
        target.copy_(source)
        end = clock()
        return Speeds(count / (middle - begin), 2 * size / (end - middle))

    return measure
