"""Compile the CPU kernel for 64-bit ARM and compare its values with the reference, under QEMU.

Needs a cross-compiler and an emulator, on Debian g++-aarch64-linux-gnu and qemu-user. Run by
`make test-arm`.
"""

import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import torch
from helpers.layer_case import Case, gradients
from torch import Tensor

from clustercaps.kernels import cluster_cpu, flags
from clustercaps.kernels.library import FUNCTIONS, LAYER_FIELDS, NAMES, Layer
from clustercaps.testing import assert_close

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
HERE = Path(__file__).parent
KERNELS = Path(flags.__file__).parent


class EmulatedLibrary:
    """Takes the place of `Library`: every call is a run of the program under the emulator."""

    has_bfloat16 = False

    def __init__(self, program: Path) -> None:
        self.program = program

    def __call__(
        self, purpose: str, layer: Layer, eps: float, norm_eps: float, *tensors: Tensor | None
    ) -> None:
        first = tensors[0]
        assert first is not None
        sizes = [getattr(layer, name) for name in LAYER_FIELDS]
        request = struct.pack(f"<{len(sizes)}qdd", *sizes, eps, norm_eps)
        blobs = [None if t is None else t.detach().numpy().tobytes() for t in tensors]
        for blob in blobs:
            request += struct.pack("<q", -1 if blob is None else len(blob)) + (blob or b"")
        name = f"{FUNCTIONS[purpose]}_{NAMES[first.dtype]}"
        command = [EMULATOR, str(self.program), name]
        answer = subprocess.run(command, input=request, capture_output=True, check=True).stdout
        for tensor, blob in zip(tensors, blobs, strict=True):
            if tensor is None or not blob:
                continue
            part, answer = answer[: len(blob)], answer[len(blob) :]
            found = torch.frombuffer(bytearray(part), dtype=tensor.dtype)
            tensor.detach().copy_(found.view(tensor.shape))


def compile_program(folder: Path) -> Path:
    program = folder / "program"
    command = [COMPILER, "-std=c++20", "-O3", "-mcpu=neoverse-n1", "-static"]
    command += ["-ffp-contract=fast", "-fno-math-errno", f"-I{KERNELS}"]
    command += [f"-I{Path(torch.__file__).parent / 'include'}"]
    subprocess.run([*command, str(HERE / "program.cpp"), "-o", str(program)], check=True)
    return program


def main() -> int:
    for tool in (COMPILER, EMULATOR):
        if shutil.which(tool) is None:
            print(f"{tool} is missing; on Debian: apt-get install g++-aarch64-linux-gnu qemu-user")
            return 1
    with tempfile.TemporaryDirectory() as folder:
        emulated = EmulatedLibrary(compile_program(Path(folder)))
        compared = compare_all(emulated)
    print(f"{compared} tensors of the ARM kernel equal the reference")
    return 0


def compare_all(emulated: EmulatedLibrary) -> int:
    compared = 0
    with patch.object(cluster_cpu, "load", lambda: emulated):
        for votes in (1, 2, 3, 5, 8, 11):
            for dtype, ratio in ((torch.float32, 3e-6), (torch.float64, 1e-12)):
                case = Case(batch=3, in_dim=5, height=19, width=13, votes=votes, out_dim=5)
                tensors = case.tensors(dtype)
                right = gradients(case.reference, [t.double() for t in tensors])
                for actual, expected in zip(gradients(case.fused, tensors), right, strict=True):
                    assert_close(f"{votes} votes", actual, expected, ratio)
                    compared += 1
    return compared


if __name__ == "__main__":
    sys.exit(main())
