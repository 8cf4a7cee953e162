"""Without a GPU: torch.compile sees both kernels, and Triton turns them into CUDA machine code.

Run by test_cluster_triton in a process of its own, because the interpreter can do neither.
"""

from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from triton import compile as compile_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver

import clustercaps as cc
from clustercaps import kernels
from clustercaps.kernels import cluster_triton

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
kernels._triton_availability = lambda: kernels.Availability(True, "")
kernels._triton_interpreted = lambda: True
layer = cc.ClusterCapsules2d(2, 3, 2, 4, votes=3, stride=2, in_size=7, backend="triton")
x = torch.randn(2, 2, 3, 7, 7)
backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
torch.compile(layer, fullgraph=True, backend=backend)(x).sum().backward()
for code, written in zip(graphs, (["capsules_ptr", "scale_ptr"], ["votes_grad_ptr"]), strict=True):
    assert code.count("higher_order.triton_kernel_wrapper") == 1, code
    # What is thought to be written is copied first; that must not happen to the votes.
    assert f"tensors_to_clone = {written}" in code, code


def binary(kernel: Any, dtype: str, votes: int, capability: int) -> str:
    """PTX of a kernel; the machine code is made from it on the way."""
    wide = "fp64" if dtype == "fp64" else "fp32"
    constants = {"eps": 1e-6, "votes": votes, "block": cluster_triton.BLOCK}
    signature = {}
    for name in kernel.arg_names:
        held = dtype if name in ("votes_ptr", "votes_grad_ptr") else wide
        other = "constexpr" if name in constants else "i32"
        signature[name] = f"*{held}" if name.endswith("_ptr") else other
    source = ASTSource(kernel, signature, constants)
    made = compile_kernel(source, target=GPUTarget("cuda", capability, 32))
    assert made.asm["cubin"]
    return made.asm["ptx"]


for dtype in ("fp32", "fp16", "bf16", "fp64"):
    for count in (1, 5):
        binary(cluster_triton._route, dtype, count, 80)
        binary(cluster_triton._route_grad, dtype, count, 80)
for capability in (70, 90):
    binary(cluster_triton._route_grad, "fp32", 8, capability)

# Every vote is read once: as many loads for 2 positions a thread as there are votes.
assert binary(cluster_triton._route, "fp32", 8, 80).count("ld.global") == 2 * 8
