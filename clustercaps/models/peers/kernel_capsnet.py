"""Kernelised capsules: the class capsules of dynamic routing under Gaussian processes.

Killian, Goodwin, Brown and Son, "Kernelized capsule networks", arXiv 1906.03164, 2019. The paper
builds the kernels of Gaussian processes from the capsules that a capsule network learns, which
gives its predictions an uncertainty.

A reconstruction: the paper's assignment of kernels to capsules and its inference are not known to
us. Here every class has a sparse variational process that reads the capsule of that class; a
softmax of the processes is the likelihood, and the evidence lower bound is learned together with
the decoder. No library of Gaussian processes is needed.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from clustercaps.layers.gaussian_process import ClassProcesses
from clustercaps.losses import negative_elbo, reconstruction_loss
from clustercaps.models.base import ClassCapsules, TrainingBatch
from clustercaps.models.peers.capsnet import CapsNet
from clustercaps.models.preset import UNKNOWN_RECIPE, Preset
from clustercaps.utils.errors import at_least
from clustercaps.utils.sizes import ImageBatch, Size


class KernelCapsNet(CapsNet):
    """The network of dynamic routing with a Gaussian process on every class capsule.

    Args:
        num_classes: Classes, at least 1: they are capsules.
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Channels of the first convolution.
        types: Primary capsule types.
        primary_dim: Numbers in a primary capsule.
        dim: Numbers in a class capsule.
        kernel_size: Side of both convolutions' windows.
        routing: A name from `clustercaps.list_routings()` whose capsules have lengths.
        routing_options: Arguments of that routing, such as `{"iterations": 1}`.
        vote_std: Deviation of the first vote matrices.
        decoder: Whether to draw the image from the capsule of its class.
        reconstruction: Weight of the squared error of the drawn image, summed over its pixels.
        inducing: Inducing points of each process.
        train_samples: Draws for the expected likelihood in training.
        samples: Draws for probabilities.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        img_size: Size = 28,
        width: int = 256,
        types: int = 32,
        primary_dim: int = 8,
        dim: int = 16,
        kernel_size: int = 9,
        routing: str = "dynamic",
        routing_options: dict[str, Any] | None = None,
        vote_std: float = 0.1,
        decoder: bool = True,
        reconstruction: float = 0.0005,
        inducing: int = 64,
        train_samples: int = 8,
        samples: int = 16,
    ) -> None:
        super().__init__(
            num_classes=num_classes,
            in_chans=in_chans,
            img_size=img_size,
            width=width,
            types=types,
            primary_dim=primary_dim,
            dim=dim,
            kernel_size=kernel_size,
            routing=routing,
            routing_options=routing_options,
            vote_std=vote_std,
            decoder=decoder,
            reconstruction=reconstruction,
        )
        at_least("train_samples", train_samples, 1)
        self.train_samples = train_samples
        self.processes = ClassProcesses(num_classes, dim, inducing, samples)

    def forward_head(self, features: ClassCapsules, pre_logits: bool = False) -> Tensor:
        """Class capsules to log-probabilities; with `pre_logits`, to the flat vector of all."""
        if pre_logits:
            return features.flatten(1)
        means, variances = self.processes(features)
        return mean_probability(draw(means, variances, self.processes.noise))

    def predict(
        self, images: ImageBatch
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch classes"]]:
        """Probabilities of the classes, and the variance of the process behind each."""
        features = self.forward_features(images)
        _, variances = self.processes(features)
        return self.forward_head(features).exp(), variances

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Minus the evidence lower bound, and the squared error of the image drawn."""
        features = self.forward_features(batch.images)
        means, variances = self.processes(features)
        noise = torch.randn(self.train_samples, *means.shape, device=means.device).to(means.dtype)
        draws = draw(means, variances, noise)
        chosen = draws.mean(0).gather(1, batch.labels.unsqueeze(1)).squeeze(1)
        loss = negative_elbo(chosen, self.processes.divergence(), batch.train_images)
        if self.decoder is not None and self.reconstruction:
            drawn = self.reconstruct(features, batch.labels)
            loss = loss + self.reconstruction * reconstruction_loss(drawn, batch.pixels)
        return loss, mean_probability(draws)


def draw(
    means: Float[Tensor, "batch classes"],
    variances: Float[Tensor, "batch classes"],
    noise: Float[Tensor, "samples _ classes"],
) -> Float[Tensor, "samples batch classes"]:
    """Log-probabilities of the classes in every draw of the processes."""
    # The square root has no slope at exactly zero.
    return (means + (variances + 1e-8).sqrt() * noise).log_softmax(2)


def mean_probability(
    draws: Float[Tensor, "samples batch classes"],
) -> Float[Tensor, "batch classes"]:
    """The logarithm of the mean over draws of the probabilities."""
    return draws.logsumexp(0) - math.log(draws.shape[0])


PAPER = 'Killian, Goodwin, Brown and Son, "Kernelized capsule networks", arXiv 1906.03164, 2019'

PRESETS = {
    "kernel_capsnet": Preset(
        KernelCapsNet,
        "Gaussian processes on class capsules (Killian 2019)",
        reconstruction=True,
        recipe=UNKNOWN_RECIPE,
        paper=PAPER,
        choices=(
            "How the paper assigns kernels to capsules, and its inference, are not known to us: "
            "here every class has a sparse variational process that reads the capsule of that "
            "class. The number of inducing points, the weights of the loss and the recipe are our "
            "choice."
        ),
        img_size=28,
        data=("mnist", "svhn", "cifar10"),
        sizes={"svhn": 32, "cifar10": 32},
    ),
}
