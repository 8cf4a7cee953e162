"""Estimate the peak memory of a step before running it.

The network runs on tensors with shapes but no data, and every storage that is allocated or freed is
counted. Memory used inside a convolution or the fused kernel is estimated by rules of thumb.
"""

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clustercaps.models.base import ImageClassifier, TrainingBatch
from clustercaps.utils.errors import at_least

# Approximate memory per thread of the fused kernel for its tiles.
TILES = 2**20


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors in nested lists and tuples."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def taken_inside(func: Any, args: Any, result: Any) -> int:
    """Temporary memory of an operator in bytes, excluding its outputs."""
    ops, threads = torch.ops, torch.get_num_threads()
    # The CPU library copies feature maps and weights to its own layouts, and computes the two
    # gradients one after the other.
    if func is ops.aten.convolution.default:
        return int(max(args[0].nbytes, result.nbytes) + args[1].nbytes)
    if func is ops.aten.convolution_backward.default:
        return int(max(args[0].nbytes + args[1].nbytes, args[2].nbytes))
    # The fused kernel stores transformed weights, and their gradient once per thread.
    if func is ops.clustercaps.fused_capsules.default:
        return int(args[1].nbytes + threads * TILES)
    if func is ops.clustercaps.fused_capsules_grad.default:
        return int((1 + threads) * args[2].nbytes + threads * TILES)
    return 0


class StorageCount(TorchDispatchMode):
    """Counts the bytes of allocated storages, and their peak.

    Args:
        given: Existing tensors, which are not counted, nor are their views.
    """

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.now: int = 0
        self.peak: int = 0
        self.backward = False
        self._given = [tensor.untyped_storage() for tensor in given]
        self._known = {id(storage) for storage in self._given}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and count its outputs."""
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_of(result):
            self._count(tensor.untyped_storage())
        # Autograd accumulates dense gradients in place, but not under a dispatch mode: during such
        # a sum there is one tensor too many.
        summed = self.backward and func is torch.ops.aten.add.Tensor and args[0].is_contiguous()
        if not summed:
            self.peak = max(self.peak, self.now + taken_inside(func, args, result))
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.now += size
        # The Python object lives as long as the storage, even if only autograd references it.
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def memory_estimate(
    model: ImageClassifier,
    input_shape: Sequence[int] | None = None,
    batch: int = 64,
    training: bool = True,
) -> int:
    """Estimated peak memory of a step in bytes, on top of the weights and the images.

    Args:
        model: The network; it is neither run nor changed.
        input_shape: Channels, height and width of the images; those of the network by default.
        batch: Batch size.
        training: Forward, loss and backward, including gradients; otherwise forward only.
    """
    at_least("batch", batch, 1)
    settings = dict(model.settings)
    if input_shape is not None:
        settings |= {"in_chans": input_shape[0], "img_size": list(input_shape[1:])}
    # On the meta device, initialisation that reads the weights is skipped.
    with torch.device("meta"):
        network = type(model)(**settings).train(training)
    with FakeTensorMode(allow_non_fake_inputs=True):
        network.to_empty(device="cpu")
        images = torch.empty(batch, network.in_chans, *network.img_size)
        labels = torch.zeros(batch, dtype=torch.int64)
        count = StorageCount([*network.parameters(), *network.buffers(), images, labels])
        with count:
            if training:
                loss, _ = network.training_loss(TrainingBatch(images, labels, images))
                count.backward = True
                loss.sum().backward()
            else:
                with torch.no_grad():
                    network(images)
    return count.peak
