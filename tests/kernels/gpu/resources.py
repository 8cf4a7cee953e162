"""Registers, spills and shared memory of the Triton kernels, read off the compiled objects.

    make triton-resources

Needs no GPU, and times nothing: writes results/triton-resources.csv. Spills are bytes of stack per
thread on NVIDIA and registers on AMD. K votes, D = 8 and 3x3 windows as in the paper's networks;
the first layer reads 9 taps of a grey image.
"""

import csv
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel

from clustercaps.kernels.triton_launch import GRAD_WARPS, STAGES, WARPS, choose_tiles
from clustercaps.kernels.triton_layer import (
    capsules_kernel,
    patches_grad_kernel,
    weight_grad_kernel,
)

KERNELS = (capsules_kernel, patches_grad_kernel, weight_grad_kernel)
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
TOOL = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
COLUMNS = ("kernel", "products", "votes", "taps", "target", "registers", "spills", "shared_bytes")


class Build(NamedTuple):
    dtype: str
    votes: int
    taps: int
    target: str


def compiled(kernel: Any, build: Build) -> Any:
    """The compiled object of a kernel, as a layer of this kind launches it."""
    tiles = choose_tiles(build.votes, build.taps + 1)
    constants: dict[str, Any] = {
        **{"kernel": 3, "stride": 2, "padding": 1, "rows": tiles.rows, "groups": tiles.groups},
        **{"uniform": False, "eps": 1e-6},
        "precision": "tf32" if build.dtype == "fp32" else "ieee",
        "tile_positions": tiles.positions,
        "tile_parents": tiles.parents,
        "tile_taps": tiles.taps,
    }
    if "grad_taps" in kernel.arg_names:
        constants["grad_taps"] = tiles.grad_taps
    wide = "fp64" if build.dtype == "fp64" else "fp32"
    signature = {}
    for name in kernel.arg_names:
        held = build.dtype if name in ("x_ptr", "weight_ptr") else wide
        other = "constexpr" if name in constants else "i32"
        signature[name] = f"*{held}" if name.endswith("_ptr") else other
    # Pointers of tensors and padded sizes are multiples of 16.
    aligned = {
        (n,): [["tt.divisibility", 16]]
        for n, name in enumerate(kernel.arg_names)
        if name.endswith("_ptr") or name.startswith("padded")
    }
    warps = GRAD_WARPS if kernel is weight_grad_kernel else WARPS
    return compile_kernel(
        ASTSource(kernel, signature, constants, attrs=aligned),
        target=TARGETS[build.target],
        options={"num_warps": warps, "num_stages": STAGES},
    )


def resources(made: Any) -> tuple[int, int, int]:
    """Registers, spills and bytes of shared memory of a compiled object."""
    if "amdgcn" in made.asm:
        text = made.asm["amdgcn"]
        counts = [
            int(re.search(rf"\.{name}:\s+(\d+)", text)[1])
            for name in ("vgpr_count", "vgpr_spill_count")
        ]
        return counts[0], counts[1], made.metadata.shared
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        text = subprocess.run(
            [TOOL, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", text).groups()
    return int(registers), int(stack), made.metadata.shared


def main(path: Path) -> None:
    rows = []
    for target in TARGETS:
        for dtype in ("fp32", "bf16"):
            for votes, taps in ((5, 9), (5, 72), (8, 72), (16, 144)):
                for kernel in KERNELS:
                    build = Build(dtype, votes, taps, target)
                    found = resources(compiled(kernel, build))
                    products = "tf32" if dtype == "fp32" else dtype
                    rows.append((kernel.__name__, products, votes, taps, target, *found))
                    print(*rows[-1], flush=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
