"""Check backends against float64 on the shapes to be timed, with a few images, before timing."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from clustercaps.bench.cases import CPU, Case, Workload, build
from clustercaps.bench.work import vote_bytes

# Relative root-mean-square error against float64. For the paper's networks the float32 reference is
# 2e-6 away; a wrong kernel is off by orders of magnitude more.
ALLOWED = 1e-5
# On other devices, whose libraries choose among algorithms that round differently. The reference is
# checked there as well.
ALLOWED_ELSEWHERE = 1e-4
# With two or three votes, spreads near zero are common and their inverse amplifies rounding errors:
# then the error may be this many times that of the float32 reference.
TIMES_REFERENCE = 4.0
# Images for the check, whatever the batch size: float64 takes minutes for a large batch.
CHECKED_IMAGES = 8
# The reference runs on few images at a time, to keep the size of their float64 votes below this.
BYTES_AT_ONCE = 2**28


def check(case: Case, backends: Sequence[str], device: torch.device = CPU) -> dict[str, float]:
    """The largest relative error of each backend's output and gradients, against float64.

    The float64 reference is computed on the CPU: not every device has float64.

    Raises:
        ValueError: An error is too large, or NaN. Nothing should be timed then.
    """
    work = build(case, "reference")
    pull = uneven_pull(work)
    at_once = max(1, BYTES_AT_ONCE * case.batch // (2 * max(vote_bytes(case))))
    plain = outcome(work, pull, at_once)
    exact_x = work.x.detach().double().requires_grad_(work.x.requires_grad)
    exact_work = Workload(copy.deepcopy(work.module).double(), exact_x, work.target)
    exact = outcome(exact_work, pull.double(), at_once)
    least = ALLOWED if device.type == "cpu" else ALLOWED_ELSEWHERE
    allowed = {
        name: max(least, TIMES_REFERENCE * relative_error(plain[name], exact[name]))
        for name in exact
    }
    errors = {}
    for backend in backends:
        found = plain
        if backend != "reference" or device.type != "cpu":
            images = at_once if backend == "reference" else case.batch
            found = outcome(build(case, backend, device), pull, images)
        off = {name: relative_error(found[name], exact[name]) for name in exact}
        for name, error in off.items():
            # Written so that NaN fails.
            if not error <= allowed[name]:
                raise ValueError(
                    f"{backend} does not match the reference on {case.name}, input {case.input}: "
                    f"{name} is off by {error:.1e}, allowed {allowed[name]:.0e}; nothing was timed"
                )
        errors[backend] = max(off.values())
    return errors


def uneven_pull(work: Workload) -> Tensor:
    """A gradient of the output that differs between images, to detect mixed-up images."""
    with torch.no_grad():
        one = work.module(work.x[:1])
    draw = torch.Generator().manual_seed(2)
    return torch.randn(len(work.x), *one.shape[1:], generator=draw)


def outcome(work: Workload, pull: Tensor, at_once: int) -> dict[str, Tensor]:
    """Output and gradients by name, `at_once` images at a time.

    Args:
        work: Module and input.
        pull: Gradient of the output.
        at_once: Images at a time; gradients of weights are summed.
    """
    work.module.zero_grad(set_to_none=True)
    outputs, inputs = [], []
    for x, pulled in zip(work.x.detach().split(at_once), pull.split(at_once), strict=True):
        x.requires_grad_(work.x.requires_grad)
        output = work.module(x)
        output.backward(pulled.to(output.device))
        outputs.append(output.detach())
        if x.grad is not None:
            inputs.append(x.grad)
    found = {"output": torch.cat(outputs)}
    if inputs:
        found["gradient of the input"] = torch.cat(inputs)
    for name, parameter in work.module.named_parameters():
        assert parameter.grad is not None
        found[f"gradient of {name}"] = parameter.grad
    return found


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Root mean square of the error divided by that of the expected values."""
    actual, expected = actual.cpu().double(), expected.cpu().double()
    error = (actual - expected).square().mean().sqrt()
    return float(error / expected.square().mean().sqrt())
