"""Without a GPU: torch.compile sees the kernels, and Triton turns them into machine code.

Run by test_cluster_triton in a process of its own, because the interpreter can do neither.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

import clustercaps as cc
from clustercaps.kernels import availability

# Beside this file.
sys.path.insert(0, str(Path(__file__).parent))
resources = import_module("resources")

graphs: list[Any] = []


class Pretended:
    """A GPU as far as torch.compile asks for one, to find what the kernels write to."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 80, 32)


driver.set_active(Pretended())


def keep(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
    """Keep the graph; where it should run, only say the shapes of what it returns."""
    graphs.append(graph.code)
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    shapes = [getattr(arg, "meta", {}).get("val") for arg in output.args[0]]
    return make_boxed_func(
        lambda *_: [
            torch.zeros(v.shape, dtype=v.dtype) if isinstance(v, torch.Tensor) else v
            for v in shapes
        ]
    )


# Without a GPU the layer would refuse the backend.
availability.triton_availability = lambda: availability.Availability(True, "")
availability.triton_interpreted = lambda: True
layer = cc.ClusterCapsules2d(2, 3, 2, 4, votes=3, stride=2, in_size=7, backend="triton")
x = torch.randn(2, 2, 3, 7, 7, requires_grad=True)
backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
torch.compile(layer, fullgraph=True, backend=backend)(x).sum().backward()
written = (["capsules_ptr", "scale_ptr"], ["patches_grad_ptr"], ["weight_grad_ptr"])
forward, backward = graphs
assert forward.count("higher_order.triton_kernel_wrapper") == 1, forward
assert backward.count("higher_order.triton_kernel_wrapper") == 2, backward
# What is thought to be written is copied first; that must not happen to the inputs.
for code, names in ((forward, written[0]), (backward, written[1]), (backward, written[2])):
    assert f"tensors_to_clone = {names}" in code, code

# Every dtype, K = 1, several groups of votes, and the targets that are supported.
for dtype in ("fp32", "fp16", "bf16", "fp64"):
    for kernel in resources.KERNELS:
        assert resources.compiled(kernel, resources.Build(dtype, 5, 72, "sm_80"))
for kernel in resources.KERNELS:
    assert resources.compiled(kernel, resources.Build("fp32", 1, 9, "sm_80"))
    assert resources.compiled(kernel, resources.Build("bf16", 17, 72, "sm_90"))
    assert resources.compiled(kernel, resources.Build("bf16", 5, 72, "gfx942"))
