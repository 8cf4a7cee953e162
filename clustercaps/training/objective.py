"""The training objective: the network with its own loss, as one module for DDP."""

from typing import Any

import torch
from torch import Tensor, nn

from clustercaps.data import Prepare
from clustercaps.models import ImageClassifier, TrainingBatch
from clustercaps.models.base import LinearClassifier
from clustercaps.training.muon import Muon
from clustercaps.training.settings import TrainSettings


class Objective(nn.Module):
    """A network together with its loss.

    This is one module because DDP synchronises the parameters used in one `forward`: a decoder that
    only the loss calls must be part of it.

    Args:
        model: The network.
        settings: Settings of the run.
        prepare: Preprocessing of the images, to recover the pixels for decoders.
        train_images: Number of images in the training set.
    """

    def __init__(
        self, model: ImageClassifier, settings: TrainSettings, prepare: Prepare, train_images: int
    ) -> None:
        super().__init__()
        own_loss = type(model).training_loss is not ImageClassifier.training_loss
        if settings.label_smoothing and own_loss:
            raise ValueError(
                f"label_smoothing needs cross-entropy, but {settings.model} has its own loss; "
                "remove it"
            )
        self.model, self.prepare, self.train_images = model, prepare, train_images
        self.label_smoothing = settings.label_smoothing

    def forward(self, images: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The loss summed over the images, and their logits."""
        batch = TrainingBatch(
            images,
            labels,
            self.prepare.pixels(images),
            step,
            self.train_images,
            self.label_smoothing,
        )
        loss, logits = self.model.training_loss(batch)
        return loss.float().sum(), logits.detach()


# Positions of the last feature map for images of 32x32, for which recipes were chosen.
USUAL_POSITIONS = 64


def new_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimizer named in the settings."""
    rate, decay = settings.lr, settings.weight_decay
    scales = head_scales(model) if settings.scale_head else {}
    if settings.optimizer == "muon":
        return Muon(
            model, rate, settings.adamw_lr, settings.momentum, settings.nesterov, decay, scales
        )
    weights: list[Any] = list(model.parameters())
    if scales:
        weights = [{"params": [p for p in weights if p not in scales]}]
        weights += [{"params": [p], "lr_scale": scale} for p, scale in scales.items()]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            weights, rate, settings.momentum, weight_decay=decay, nesterov=settings.nesterov
        )
    if settings.optimizer == "rmsprop":
        # Keras defaults, which the networks that use it were trained with.
        return torch.optim.RMSprop(weights, rate, alpha=0.9, eps=1e-8, weight_decay=decay)
    if settings.optimizer == "radam":
        return torch.optim.RAdam(weights, rate, weight_decay=decay)
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(weights, rate, betas=(0.9, 0.99), weight_decay=decay)
    return torch.optim.Adam(weights, rate, weight_decay=decay)


def head_scales(model: nn.Module) -> dict[Tensor, float]:
    """The factor of the learning rate of a head's weight, if it reads a large feature map.

    Its features have unit variance at every position. A step of a given rate therefore changes the
    logits in proportion to the number of positions: by 49 times as much at 224x224 as at 32x32.
    """
    if not isinstance(model, LinearClassifier) or not isinstance(model.head, nn.Linear):
        return {}
    scale = USUAL_POSITIONS / model.head_positions
    return {model.head.weight: scale} if scale < 1 else {}
