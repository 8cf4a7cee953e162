"""Builds the CPU kernel on first use and keeps it in the user's cache folder.

The package ships only source code: a kernel compiled for the machine it runs on is several times
faster than a portable one, and installation needs no compiler.
"""

import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from clustercaps.kernels import built, flags
from clustercaps.utils.files import kernel_folder, take_lock

HERE = Path(__file__).parent
SOURCE = HERE / "cluster_cpu.cpp"
EXPECTED_SECONDS = 15
# After this time a compiler is taken to hang: for its version, and for the kernel.
VERSION_SECONDS = 60.0
BUILD_SECONDS = 1200.0


class BuildError(RuntimeError):
    """The kernel cannot be built here; the message says why."""


def find_compiler() -> list[str]:
    """The command of the C++ compiler: $CXX, else the first of the usual names."""
    named = os.environ.get("CXX")
    usual = ["cl"] if sys.platform == "win32" else ["c++", "g++", "clang++"]
    for command in [named] if named else usual:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise BuildError(f"the environment variable CXX={named} is wrong: {error}") from error
        if words and shutil.which(words[0]):
            return words
    if named:
        raise BuildError(f"the compiler in the environment variable CXX, {named!r}, does not exist")
    raise BuildError(f"no C++ compiler found (tried {', '.join(usual)}; set CXX to another one)")


def library_path(march: str = "native") -> Path:
    """Path of the kernel for this machine, compiler and torch, whether built or not.

    Raises:
        BuildError: There is no compiler that works, or no folder for the kernel.
    """
    compiler = find_compiler()
    if sys.platform == "win32" or Path(compiler[0]).stem.lower() in ("cl", "clang-cl"):
        raise BuildError(
            "it is built with GCC or Clang, for Linux and macOS, not with Microsoft's compiler"
        )
    try:
        folder, sources = kernel_folder(), _sources()
    except OSError as error:
        raise BuildError(str(error)) from error
    parts = [*sources, *flags.first_choice(march), _version(tuple(compiler)), torch.__version__]
    parts.append(cpu_name() if march == "native" else platform.machine())
    # Environment variables may contain any bytes.
    key = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
    return folder / f"cluster_cpu-{key}.so"


def build(march: str = "native") -> Path:
    """Build the kernel, or find it in the cache.

    If several processes call this at the same time, one builds and the others wait for it. A
    damaged kernel is built again.

    Args:
        march: The instruction set, for the compiler's `-march`.

    Raises:
        BuildError: There is no compiler, the cache cannot be written or is open to other users, or
            the compiler failed.
    """
    library = library_path(march)
    try:
        if built.usable(library):
            return library
        library.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        built.check_private(library.parent)
        with take_lock(library.with_suffix(".lock")):
            if not built.usable(library):
                built.remove_leftovers(library)
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
    log.unlink(missing_ok=True)
    # A temporary name first: an interrupted build never looks like a finished one.
    prefix = built.building_prefix(library)
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=prefix) as folder:
        unfinished = Path(folder) / library.name

        def compiles(program: str, chosen: list[str]) -> bool:
            source = Path(folder) / "answer.cpp"
            source.write_text(program, encoding="utf-8")
            return _compiler(source, source.with_suffix(".so"), chosen, log) == 0

        chosen = flags.first_choice(march)
        code = _compiler(SOURCE, unfinished, chosen, log)
        other = flags.accepted(march, compiles) if code > 0 else None
        if other not in (None, chosen):
            code = _compiler(SOURCE, unfinished, other, log)
        if code != 0:
            raise BuildError(f"the compiler failed with code {code}; see the log {log}")
        if not unfinished.exists():
            raise BuildError(f"the compiler wrote no library; see the log {log}")
        built.put(unfinished, library)


def _compiler(source: Path, library: Path, chosen: list[str], log: Path) -> int:
    """Compile a source file to a library; returns the exit code and appends to the log."""
    command = [*find_compiler(), *chosen, str(source), "-o", str(library)]
    torch_folder = Path(torch.__file__).parent
    command += [f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}"]
    command += ["-ltorch_cpu", "-lc10"]
    with log.open("a", encoding="utf-8", errors="backslashreplace") as out:
        print(shlex.join(command), file=out, flush=True)
        # Temporary files of the compiler also go to the cache.
        environment = {**os.environ, "TMPDIR": str(library.parent)}
        code, _ = _run(command, BUILD_SECONDS, stdout=out, env=environment)
    return code


def _run(command: list[str], seconds: float, **options: Any) -> tuple[int, bytes]:
    """Return code and output of a command; after `seconds`, it and what it started are killed."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        # A process group of its own: a compiler is several processes.
        start_new_session=True,
        **options,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise BuildError(f"{command[0]} did not end within {seconds:g} s") from None
    except BaseException:
        # Ctrl-C reaches only this process.
        _kill(process)
        raise
    return process.returncode, said or b""


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _sources() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted([SOURCE, *HERE.glob("*.h")])]


@cache
def _version(compiler: tuple[str, ...]) -> str:
    command = [*compiler, "--version"]
    try:
        code, said = _run(command, VERSION_SECONDS, stdout=subprocess.PIPE)
    except OSError as error:
        raise BuildError(f"cannot run {shlex.join(command)}: {error}") from error
    if code != 0:
        raise BuildError(f"{shlex.join(command)} failed with code {code}")
    return shlex.join(compiler) + said.decode(errors="replace")


@cache
def cpu_name() -> str:
    """Vendor, name and features of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine() + platform.processor() + _apple_name()
    # The entries of the first core: its name and features.
    wanted = ("vendor_id", "model name", "flags", "Features", "CPU part")
    return "\n".join(next((line for line in lines if line.startswith(name)), "") for name in wanted)


def _apple_name() -> str:
    """The name of an Apple processor, of which Python knows only "arm"."""
    if sys.platform != "darwin":
        return ""
    try:
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return _run(command, VERSION_SECONDS, stdout=subprocess.PIPE)[1].decode(errors="replace")
    except (OSError, BuildError):
        return ""
