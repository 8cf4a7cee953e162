"""Kernelised capsules: Gaussian processes on the class capsules of dynamic routing.

Killian, Goodwin, Brown and Son, "Kernelized capsule networks", arXiv 1906.03164, 2019. The paper
builds the kernels of Gaussian processes from the capsules that a capsule network learns, which
gives its predictions an uncertainty.

A reconstruction: the paper's assignment of kernels to capsules and its inference are not known to
us. Here every class has a sparse variational process on its capsule; a softmax of the processes is
the likelihood, and the evidence lower bound is maximised together with training the decoder. No
Gaussian process library is needed.
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

    The arguments that are not listed are those of `CapsNet`.

    Args:
        inducing: Number of inducing points per process.
        train_samples: Number of samples for the expected likelihood in training.
        samples: Number of samples for probabilities.
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
        """Class capsules to log-probabilities; with `pre_logits`, flattened."""
        if pre_logits:
            return features.flatten(1)
        means, variances = self.processes(features)
        return mean_probability(draw(means, variances, self.processes.noise))

    def predict(
        self, images: ImageBatch
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch classes"]]:
        """Class probabilities, and the variance of the process of each class."""
        features = self.forward_features(images)
        _, variances = self.processes(features)
        return self.forward_head(features).exp(), variances

    def training_loss(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Negative evidence lower bound and reconstruction loss."""
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
    """Log-probabilities of the classes in every sample of the processes."""
    # The square root has no gradient at exactly zero.
    return (means + (variances + 1e-8).sqrt() * noise).log_softmax(2)


def mean_probability(
    draws: Float[Tensor, "samples batch classes"],
) -> Float[Tensor, "batch classes"]:
    """The logarithm of the mean probability over samples."""
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
            "here every class has a sparse variational process on its capsule. The number of "
            "inducing points, the loss weights and the recipe are our choice."
        ),
        img_size=28,
        data=("mnist", "svhn", "cifar10"),
        sizes={"svhn": 32, "cifar10": 32},
    ),
}
