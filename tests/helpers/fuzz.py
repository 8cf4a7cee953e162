"""Random calls of the fused kernel, valid and invalid, for `tests/kernels/test_fuzz.py`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor

TENSORS = ("x", "weight", "bias", "norm_weight", "norm_bias")
SETTINGS = ("stride", "padding", "clusters", "votes", "out_channels", "uniform", "eps")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ODD_DTYPES = (torch.int64, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn)
HUGE = 2**50


@dataclass
class Call:
    """Arguments of `fused_capsules`, by name, and what was done to them."""

    tensors: dict[str, Tensor | None]
    settings: dict[str, Any]
    done: list[str] = field(default_factory=list)
    # Whether the kernel must compute it: only memory layouts were changed.
    valid: bool = True

    def arguments(self) -> tuple[Any, ...]:
        """All arguments of the operator, in its order."""
        x, weight, bias, *norm = (self.tensors[name] for name in TENSORS)
        sizes = (self.settings[name] for name in SETTINGS)
        return x, weight, bias, *sizes, self.settings["norm"], *norm, self.settings["norm_eps"]


def draw_call(random: Random) -> Call:
    """A valid call: small, of any shape that a layer can have."""
    kernel, padding, stride = random.randint(1, 4), random.randint(0, 2), random.randint(1, 3)
    smallest = max(1, kernel - 2 * padding)
    height, width = (random.randint(smallest, smallest + 9) for _ in range(2))
    channels, in_dim = random.randint(1, 3), random.randint(1, 5)
    clusters, votes = random.randint(1, 2), random.randint(1, 10)
    out_channels, out_dim = random.randint(1, 3), random.randint(1, 4)
    batch = random.choice([0, 1, 1, 2, 3])
    rows = channels * clusters * votes * out_channels * out_dim
    maps = [(side + 2 * padding - kernel) // stride + 1 for side in (height, width)]
    norm = random.random() < 0.5
    learned = norm and random.random() < 0.7
    shapes = {
        "x": (batch, channels, in_dim, height, width),
        "weight": (rows, in_dim, kernel, kernel),
        "bias": (rows,) if random.random() < 0.7 else None,
        "norm_weight": (out_dim, *maps) if learned else None,
        "norm_bias": (out_dim, *maps) if learned else None,
    }
    dtype = random.choice([torch.float32, torch.float64])
    draw = torch.Generator().manual_seed(random.getrandbits(32))
    tensors = {
        name: None if shape is None else torch.randn(shape, generator=draw, dtype=dtype)
        for name, shape in shapes.items()
    }
    sizes = (stride, padding, clusters, votes, out_channels, random.random() < 0.2, 1e-2)
    settings = dict(zip(SETTINGS, sizes, strict=True))
    return Call(tensors, settings | {"norm": norm, "norm_eps": 1e-2})


def stepped(tensor: Tensor) -> Tensor:
    """The same values with gaps between them."""
    if tensor.ndim == 0 or not tensor.dtype.is_floating_point or not tensor.is_cpu:
        return tensor
    return torch.stack([tensor, torch.full_like(tensor, torch.nan)], -1)[..., 0]


def turned(tensor: Tensor) -> Tensor:
    """The same values with their axes in another order in memory."""
    axes = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(axes).contiguous().permute(axes)


def shifted(tensor: Tensor) -> Tensor:
    """The same values, one entry away from the start of their memory."""
    if not tensor.is_cpu:
        return tensor
    room = tensor.new_zeros(tensor.numel() + 1)
    room[1:] = tensor.reshape(-1)
    return room[1:].view(tensor.shape)


def negated_view(tensor: Tensor) -> Tensor:
    """The same values with PyTorch's lazy negative sign."""
    return torch._neg_view(-tensor) if tensor.dtype.is_floating_point else tensor


# The kernel must accept these.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    f.__name__: f for f in (stepped, turned, shifted, negated_view)
}


def broken(random: Random, tensor: Tensor) -> tuple[str, Tensor]:
    """A tensor of another shape, dtype, device or layout."""
    kind = random.choice(["dtype", "odd dtype", "meta", "sparse", "axis", "axes", "expanded"])
    axis = random.randrange(tensor.ndim) if tensor.ndim else 0
    if kind == "dtype":
        return kind, tensor.to(random.choice(DTYPES))
    if kind == "odd dtype":
        return kind, tensor.to(random.choice(ODD_DTYPES))
    if kind == "meta":
        return kind, tensor.to("meta")
    if kind == "sparse":
        return kind, tensor.to_sparse()
    if kind == "axes":
        fewer = tensor.ndim > 1 and random.random() < 0.5
        return kind, tensor.flatten(0, 1) if fewer else tensor.unsqueeze(axis)
    old = tensor.shape[axis] if tensor.ndim else 1
    if kind == "axis":
        new = max(0, old + random.choice([-old, -1, 1, 2]))
        return kind, tensor.new_ones((*tensor.shape[:axis], new, *tensor.shape[axis + 1 :]))
    if not tensor.numel():
        return kind, tensor
    first = tensor.narrow(axis, 0, 1) if tensor.ndim else tensor.view(1)
    sizes = list(first.shape)
    sizes[axis] = random.choice([old, old + 1, HUGE])
    return kind, first.expand(sizes)


def change(random: Random, call: Call) -> None:
    """Change one thing about a call."""
    kind = random.choice(["layout", "layout", "tensor", "tensor", "tensor", "missing", "setting"])
    present = [name for name in TENSORS if call.tensors[name] is not None]
    name = random.choice(present)
    tensor = call.tensors[name]
    assert tensor is not None
    if kind == "layout":
        how = random.choice(list(LAYOUTS))
        if tensor.layout is torch.strided and tensor.numel() < HUGE:
            call.tensors[name] = LAYOUTS[how](tensor)
        call.done.append(f"{how} {name}")
        return
    call.valid = False
    if kind == "tensor":
        if tensor.layout is torch.strided and tensor.numel() < HUGE:
            kind, call.tensors[name] = broken(random, tensor)
    elif kind == "missing":
        name = random.choice(TENSORS[2:])
        call.tensors[name] = None
    else:
        name = random.choice([*SETTINGS, "norm", "norm_eps"])
        before = call.settings[name]
        call.settings[name] = other_setting(random, name, before)
        kind = f"{before} -> {call.settings[name]}"
    call.done.append(f"{name}: {kind}")


def other_setting(random: Random, name: str, value: Any) -> Any:
    """Another value of a setting, often a senseless one."""
    if name in ("uniform", "norm"):
        return not value
    if name in ("eps", "norm_eps"):
        return random.choice([-1e-3, -1.0, float("nan"), float("inf"), 1e35, 1e-3])
    return random.choice([-1, 0, 1, value + 1, 2 * value, 2**31, 2**33, 2**62])
