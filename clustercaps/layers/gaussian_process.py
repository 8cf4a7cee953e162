"""Sparse variational Gaussian processes, one per class, in plain PyTorch.

A process j has M inducing points z with values u = K_L w, where K_L K_L^T is the kernel matrix at
the points, and w has the approximate posterior N(m, L L^T) and the prior N(0, I). With the kernel

    k(x, y) = variance exp(-|x - y|^2 / (2 scale^2))
    A       = K_L^-1 k(z, x)

the process at x has the mean A^T m and the variance k(x, x) - |A|^2 + |L^T A|^2.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.losses import gaussian_kl
from clustercaps.utils.errors import at_least
from clustercaps.utils.precision import without_autocast

# Added to the diagonal of the kernel matrix, relative to the variance: coinciding points would make
# it singular. Float32 needs this much.
JITTER = 1e-4


def rbf_kernel(
    left: Float[Tensor, "classes left dim"],
    right: Float[Tensor, "classes right dim"],
    variance: Float[Tensor, " classes"],
    scale: Float[Tensor, " classes"],
) -> Float[Tensor, "classes left right"]:
    """The RBF kernel matrix."""
    # Not from inner products: squared distances of near points could become negative.
    squares = (left.unsqueeze(2) - right.unsqueeze(1)).square().sum(3)
    return variance.view(-1, 1, 1) * (-squares / (2 * scale.square().view(-1, 1, 1))).exp()


def sparse_process(
    points: Float[Tensor, "classes batch dim"],
    inducing: Float[Tensor, "classes inducing dim"],
    mean: Float[Tensor, "classes inducing"],
    factor: Float[Tensor, "classes inducing inducing"],
    variance: Float[Tensor, " classes"],
    scale: Float[Tensor, " classes"],
    jitter: float = JITTER,
) -> tuple[Float[Tensor, "classes batch"], Float[Tensor, "classes batch"]]:
    """Mean and variance of the process of every class at its points.

    Args:
        points: Where to evaluate the processes.
        inducing: Inducing points (z).
        mean: Mean of the whitened values there (m).
        factor: Lower triangular factor of their covariance (L).
        variance: Variance of the prior.
        scale: Length scale of the kernel.
        jitter: Added to the diagonal of the kernel matrix, relative to the variance.
    """
    eye = torch.eye(inducing.shape[1], dtype=inducing.dtype, device=inducing.device)
    gram = rbf_kernel(inducing, inducing, variance, scale) + jitter * variance.view(-1, 1, 1) * eye
    root = torch.linalg.cholesky(gram)
    cross = rbf_kernel(inducing, points, variance, scale)
    whitened = torch.linalg.solve_triangular(root, cross, upper=False)
    means = torch.einsum("jmb,jm->jb", whitened, mean)
    spread = torch.einsum("jmk,jmb->jkb", factor, whitened).square().sum(1)
    known = whitened.square().sum(1)
    return means, (variance.unsqueeze(1) - known + spread).clamp(min=0)


class ClassProcesses(nn.Module):
    """One sparse Gaussian process per class, on the capsule of that class.

    Args:
        classes: Number of classes (J).
        dim: Dimension of a class capsule.
        inducing: Number of inducing points per process (M).
        samples: Number of samples to average probabilities over in evaluation.
    """

    noise: Tensor

    def __init__(self, classes: int, dim: int, inducing: int = 64, samples: int = 16) -> None:
        super().__init__()
        sizes = {"classes": classes, "dim": dim, "inducing": inducing, "samples": samples}
        for name, value in sizes.items():
            at_least(name, value, 1)
        # Points of length about 1/2, half of the maximum length of squashed capsules.
        self.inducing = nn.Parameter(torch.randn(classes, inducing, dim) / (2 * dim**0.5))
        # Not exactly the prior: with a zero mean, the points get no gradient.
        self.mean = nn.Parameter(0.1 * torch.randn(classes, inducing))
        # The lower triangle, row by row, with logarithms on the diagonal: zeros are the identity.
        self.triangle = nn.Parameter(torch.zeros(classes, inducing * (inducing + 1) // 2))
        self.log_variance = nn.Parameter(torch.zeros(classes))
        self.log_scale = nn.Parameter(torch.zeros(classes))
        # Fixed, and saved with the weights: evaluation is deterministic.
        self.register_buffer("noise", torch.randn(samples, 1, classes))

    def factor(self) -> Float[Tensor, "classes inducing inducing"]:
        """The lower triangular factor of the posterior covariance."""
        size = self.inducing.shape[1]
        rows, columns = torch.tril_indices(size, size, device=self.triangle.device)
        full = self.triangle.new_zeros(self.triangle.shape[0], size, size)
        full[:, rows, columns] = self.triangle
        return full.tril(-1) + torch.diag_embed(full.diagonal(dim1=1, dim2=2).exp())

    def forward(
        self, capsules: Float[Tensor, "batch classes dim"]
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch classes"]]:
        """Class capsules to mean and variance of the logit of every class."""
        # The Cholesky decomposition fails in half precision.
        with without_autocast(capsules):
            means, variances = sparse_process(
                capsules.to(self.inducing.dtype).transpose(0, 1),
                self.inducing,
                self.mean,
                self.factor(),
                self.log_variance.exp(),
                self.log_scale.exp(),
            )
        return means.T, variances.T

    def divergence(self) -> Float[Tensor, ""]:
        """KL divergence of the posteriors from the priors, summed over classes."""
        return gaussian_kl(self.mean, self.factor()).sum()
