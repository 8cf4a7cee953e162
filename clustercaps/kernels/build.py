"""Builds the CPU kernel on first use and keeps it in the user's cache folder.

The package ships only source code: a kernel compiled for the machine it runs on is several times
faster than a portable one, and installation needs no compiler.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

from clustercaps.utils.files import kernel_folder, take_lock

HERE = Path(__file__).parent
SOURCE = HERE / "cluster_cpu.cpp"
EXPECTED_SECONDS = 15


class BuildError(RuntimeError):
    """The kernel cannot be built here; the message says why."""


def find_compiler() -> list[str]:
    """The command of the C++ compiler: $CXX, else the first of c++, g++, clang++."""
    named = os.environ.get("CXX")
    for command in [named] if named else ["c++", "g++", "clang++"]:
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    if named:
        raise BuildError(f"the compiler in the environment variable CXX, {named!r}, does not exist")
    raise BuildError("no C++ compiler found (tried c++, g++, clang++; set CXX to another one)")


def library_path(march: str = "native") -> Path:
    """Path of the kernel for this machine, compiler and torch, whether built or not."""
    compiler = find_compiler()
    parts = [*_sources(), *_flags(march), _version(tuple(compiler)), torch.__version__]
    parts.append(cpu_name() if march == "native" else platform.machine())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return kernel_folder() / f"cluster_cpu-{key}.so"


def build(march: str = "native") -> Path:
    """Build the kernel, or find it in the cache.

    If several processes call this at the same time, one builds and the others wait for it.

    Args:
        march: The instruction set, for the compiler's `-march`.

    Raises:
        BuildError: There is no compiler, the cache cannot be written, or the compiler failed.
    """
    library = library_path(march)
    if library.exists():
        return library
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with take_lock(library.with_suffix(".lock")):
            if not library.exists():
                _compile(library, march)
    except OSError as error:
        raise BuildError(f"cannot use the cache folder {library.parent}: {error}") from error
    return library


def _compile(library: Path, march: str) -> None:
    print(
        f"clustercaps: building the CPU kernel once, about {EXPECTED_SECONDS} s "
        f"(cached in {library.parent})",
        file=sys.stderr,
        flush=True,
    )
    log = library.with_suffix(".log")
    # A temporary name first: an interrupted build never looks like a finished one.
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="building-") as folder:
        unfinished = Path(folder) / library.name
        command = [*find_compiler(), *_flags(march), str(SOURCE), "-o", str(unfinished)]
        torch_folder = Path(torch.__file__).parent
        command += [f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}"]
        command += ["-ltorch_cpu", "-lc10"]
        with log.open("w") as out:
            print(shlex.join(command), file=out, flush=True)
            # Temporary files of the compiler also go to the cache.
            environment = {**os.environ, "TMPDIR": folder}
            done = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment, check=False
            )
        if done.returncode != 0:
            raise BuildError(f"the compiler failed with code {done.returncode}; see the log {log}")
        os.replace(unfinished, library)


def _flags(march: str) -> list[str]:
    flags = ["-std=c++20", "-O3", f"-march={march}", "-shared", "-fPIC", "-fopenmp"]
    # Fused multiply-add, and square roots without a check for negative numbers. This is not
    # -ffast-math: NaN and infinity keep their meaning.
    flags += ["-ffp-contract=fast", "-fno-math-errno"]
    sanitizer = os.environ.get("CLUSTERCAPS_SANITIZE")
    if sanitizer:
        flags += [f"-fsanitize={sanitizer}", "-g", "-fno-omit-frame-pointer"]
    return flags


def _sources() -> list[str]:
    return [path.read_text() for path in sorted([SOURCE, *HERE.glob("*.h")])]


@cache
def _version(compiler: tuple[str, ...]) -> str:
    command = [*compiler, "--version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"cannot run {shlex.join(command)}: {error}") from error
    return shlex.join(compiler) + said


@cache
def cpu_name() -> str:
    """Vendor, name and features of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    # The entries of the first core: its name and features.
    wanted = ("vendor_id", "model name", "flags", "Features", "CPU part")
    return "\n".join(next((line for line in lines if line.startswith(name)), "") for name in wanted)
