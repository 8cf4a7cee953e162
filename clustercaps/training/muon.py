"""Muon: orthogonalised momentum for the weights of convolutions, AdamW for everything else.

A momentum matrix M = U S V' is replaced by approximately U V', so that all its directions get the
same step size. Five steps of a quintic Newton-Schulz iteration bring the singular values close to
1, with the coefficients of Keller Jordan's Muon (2024), which `torch.optim.Muon` uses too. That
class supports only 2-D parameters. A grouped convolution has one matrix per group: in a capsule
layer, the matrices of different child channels share no input and are orthogonalised separately.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
BETAS, EPS = (0.9, 0.99), 1e-8


def orthogonalise(
    matrices: Float[Tensor, "groups rows columns"],
) -> Float[Tensor, "groups rows columns"]:
    """Each matrix with its singular values brought close to 1; zeros stay zeros."""
    a, b, c = COEFFICIENTS
    wide = matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT
    x = wide / (wide.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide is matrices else x.mT


class Muon(Optimizer):
    """Muon on the convolutions of a network, AdamW on its other parameters.

    Both weight decays are decoupled: a step multiplies weights by 1 - lr x decay.

    Args:
        model: The network to train.
        lr: Learning rate of convolution weights.
        adamw_lr: Learning rate of all other parameters.
        momentum: Momentum of convolution weights.
        nesterov: Use Nesterov momentum.
        weight_decay: Weight decay of all parameters.
        scales: Factors of the learning rate of single parameters.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.02,
        adamw_lr: float = 2e-3,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        scales: Mapping[Tensor, float] | None = None,
    ) -> None:
        scale = adamw_lr / lr if lr else 1.0
        groups = list(parameter_groups(model, scale, weight_decay, scales or {}))
        super().__init__(groups, {"lr": lr, "momentum": momentum, "nesterov": nesterov})
        for group in self.param_groups:
            group["lr"] = lr * group["lr_scale"]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient; returns the loss of the closure, if any."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                if group["matrices"]:
                    self._orthogonal_step(parameter, group)
                else:
                    self._adamw_step(parameter, group)
        return loss

    def _orthogonal_step(self, weight: Tensor, group: dict[str, Any]) -> None:
        memory, gradient = self.state[weight], weight.grad
        assert gradient is not None
        if not memory:
            memory["momentum"] = torch.zeros_like(weight)
        momentum = memory["momentum"].mul_(group["momentum"]).add_(gradient)
        if group["nesterov"]:
            momentum = gradient + group["momentum"] * momentum
        matrices = momentum.reshape(group["matrices"], -1, math.prod(weight.shape[1:]))
        # Makes the step size per row independent of the number of rows.
        length = math.sqrt(max(1.0, matrices.shape[1] / matrices.shape[2]))
        weight.add_(orthogonalise(matrices).view_as(weight), alpha=-group["lr"] * length)

    def _adamw_step(self, parameter: Tensor, group: dict[str, Any]) -> None:
        memory, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not memory:
            memory["step"] = torch.zeros(())
            memory["mean"], memory["square"] = (torch.zeros_like(parameter) for _ in range(2))
        memory["step"] += 1
        step = float(memory["step"])
        memory["mean"].lerp_(gradient, 1 - BETAS[0])
        memory["square"].lerp_(gradient.square(), 1 - BETAS[1])
        scale = (memory["square"] / (1 - BETAS[1] ** step)).sqrt_().add_(EPS)
        parameter.addcdiv_(memory["mean"], scale, value=-group["lr"] / (1 - BETAS[0] ** step))


def parameter_groups(
    model: nn.Module,
    adamw_scale: float,
    weight_decay: float,
    scales: Mapping[Tensor, float],
) -> Iterable[dict[str, Any]]:
    """One group per number of matrices in a convolution weight, and one per scale for the rest.

    `lr_scale` multiplies the learning rate of the schedule.
    """
    convolutions: dict[int, list[Tensor]] = {}
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.requires_grad:
            convolutions.setdefault(module.groups, []).append(module.weight)
    for matrices, weights in convolutions.items():
        yield {
            "params": weights,
            "matrices": matrices,
            "lr_scale": 1.0,
            "weight_decay": weight_decay,
        }
    taken = {id(weight) for weights in convolutions.values() for weight in weights}
    rest: dict[float, list[Tensor]] = {}
    for parameter in model.parameters():
        if id(parameter) not in taken and parameter.requires_grad:
            rest.setdefault(scales.get(parameter, 1.0), []).append(parameter)
    for scale, parameters in rest.items():
        yield {
            "params": parameters,
            "matrices": 0,
            "lr_scale": adamw_scale * scale,
            "weight_decay": weight_decay,
        }
