"""Compare an exported file with its network: values, and speed in turns."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clustercaps.export.classifier import ExportedClassifier
from clustercaps.export.samples import BATCHES, Samples
from clustercaps.models import ImageClassifier

# Largest difference of an output, as a fraction of the largest output of the network. Smaller
# ones than the second number change no probability that is printed.
TOLERANCE, NEGLIGIBLE = 1e-3, 1e-4
# Turns of both in a measurement of speed, and the time after which it stops early.
TURNS, SECONDS = 7, 3.0


class Verified(NamedTuple):
    """What was found.

    Attributes:
        difference: Largest difference of an output.
        accepted: The largest that is accepted.
        scale: Largest absolute output of the network.
        speed: Batch size -> how many times as fast as the network the file is, on one thread.
    """

    difference: float
    accepted: float
    scale: float
    speed: dict[int, float]


@torch.no_grad()
def verify(model: ImageClassifier, exported: ExportedClassifier, samples: Samples) -> Verified:
    """Compare on batches of several sizes; raises an error if the outputs differ too much."""
    difference, scale = 0.0, 0.0
    for size in BATCHES:
        images = samples.images[:size]
        expected = model(images).numpy()
        actual = exported.run(images.numpy())
        if actual.shape != expected.shape or not np.isfinite(expected).all():
            raise ValueError(
                f"outputs of shape {actual.shape} instead of {expected.shape}, or not finite, for "
                f"{size} images; nothing was written"
            )
        # NaN in the file's outputs must not pass as a small difference.
        difference = max(
            difference, float(np.abs(np.nan_to_num(actual, nan=np.inf) - expected).max())
        )
        scale = max(scale, float(np.abs(expected).max()))
    accepted = max(TOLERANCE * scale, NEGLIGIBLE)
    if not difference <= accepted:
        raise ValueError(
            f"the exported network differs from the original by {difference:.1e} in outputs of up "
            f"to {scale:.3g}, more than {accepted:.1e}, on {samples.origin}; nothing was written"
        )
    with one_thread():
        speed = {size: relative_speed(model, exported, samples.images[:size]) for size in BATCHES}
    return Verified(difference, accepted, scale, speed)


def relative_speed(model: ImageClassifier, exported: ExportedClassifier, images: Tensor) -> float:
    """How many times as fast as the network the file is: the fastest of several turns of both."""
    array, start = images.numpy(), time.perf_counter()
    times = []
    for _ in range(TURNS):
        before = time.perf_counter()
        model(images)
        between = time.perf_counter()
        exported.run(array)
        after = time.perf_counter()
        times.append((between - before, after - between))
        if after - start > SECONDS:
            break
    network, file = map(min, zip(*times, strict=True))
    return network / file


@contextmanager
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine would be measured instead of the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
