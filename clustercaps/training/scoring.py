"""Test a network: errors, loss and confusion matrix."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.data import FolderImages, Images, Prepare
from clustercaps.training.batches import BATCH, Share, evaluation_batches
from clustercaps.training.processes import exchange_device


@dataclass(frozen=True)
class Score:
    """Counts over a test set.

    Attributes:
        confusion: `confusion[i, j]` images of class i were classified as j.
        loss_sum: Sum of the cross-entropy over the images.
        top5_misses: Images whose class is not among the five most likely.
    """

    confusion: Tensor
    loss_sum: float
    top5_misses: int

    @property
    def total(self) -> int:
        """Images tested."""
        return int(self.confusion.sum())

    @property
    def errors(self) -> int:
        """Number of misclassified images."""
        return self.total - int(self.confusion.trace())

    @property
    def error(self) -> float:
        """Percentage of misclassified images."""
        return 100 * self.errors / self.total

    @property
    def top5_error(self) -> float:
        """Percentage of images whose class is not among the five most likely."""
        return 100 * self.top5_misses / self.total

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        return self.loss_sum / self.total

    def over_all_processes(self, accelerator: Accelerator) -> "Score":
        """The sum of the counts of all processes."""
        device = exchange_device(accelerator)
        sums = torch.tensor([self.loss_sum, self.top5_misses], dtype=torch.float64, device=device)
        loss_sum, misses = accelerator.reduce(sums, "sum").tolist()
        confusion = accelerator.reduce(self.confusion.to(device), "sum").cpu()
        return Score(confusion, loss_sum, int(misses))

    def to_plain(self) -> dict[str, Any]:
        """The counts as JSON can hold them."""
        return {**asdict(self), "confusion": self.confusion.tolist()}

    @classmethod
    def from_plain(cls, counts: Mapping[str, Any]) -> "Score":
        """What `to_plain` gave."""
        return cls(**{**counts, "confusion": torch.tensor(counts["confusion"])})


@torch.no_grad()
def score(
    model: nn.Module,
    images: Images | FolderImages,
    prepare: Prepare,
    num_classes: int,
    device: torch.device,
    share: Share | None = None,
    workers: int = 2,
) -> Score:
    """Test a network on this process's part of the images, each image once.

    Args:
        model: The network, on `device`.
        images: What to test it on.
        prepare: How the images are prepared.
        num_classes: Classes.
        device: Where to compute; the counts are on the CPU.
        share: Which of the processes this is; the only one unless given.
        workers: Processes that read streamed images.
    """
    was_training = model.training
    model.eval()
    confusion = torch.zeros(num_classes, num_classes, dtype=torch.int64)
    loss_sum, misses = 0.0, 0
    for batch, labels in evaluation_batches(
        images, prepare, BATCH, share or Share(), device, workers
    ):
        logits = model(batch).float()
        loss_sum += float(F.cross_entropy(logits, labels, reduction="sum"))
        best = logits.topk(min(5, num_classes), dim=1).indices
        misses += int((best != labels.unsqueeze(1)).all(1).sum())
        pairs = labels * num_classes + best[:, 0]
        confusion += torch.bincount(pairs.cpu(), minlength=num_classes**2).view_as(confusion)
    model.train(was_training)
    return Score(confusion, loss_sum, misses)
