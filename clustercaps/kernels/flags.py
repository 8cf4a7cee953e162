"""Flags for the C++ compiler, and what to do without if it does not accept them.

GCC gets the first choice of everything. Apple's Clang has no `-fopenmp`, and older ones no
`-march=native` on ARM; Clang elsewhere may be installed without the headers of OpenMP.
"""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator

# Programs to try the flags with.
PLAIN_PROGRAM = 'extern "C" int answer() { return 0; }\n'
OPENMP_PROGRAM = '#include <omp.h>\nextern "C" int answer() { return omp_get_max_threads(); }\n'

Flags = list[str]


def first_choice(march: str) -> Flags:
    """The flags to try first."""
    return [*common(), *next(iter(machine(march))), *next(iter(openmp()))]


def accepted(march: str, compiles: Callable[[str, Flags], bool]) -> Flags | None:
    """The best flags that the compiler accepts; None if it cannot compile the plainest program.

    Args:
        march: The instruction set; only "native" has alternatives.
        compiles: Whether the compiler can make a library from a program with flags.
    """

    def first(program: str, choices: Iterable[Flags]) -> Flags | None:
        return next((flags for flags in choices if compiles(program, flags)), None)

    base = first(PLAIN_PROGRAM, ([*common(), *each] for each in machine(march)))
    if base is None:
        return None
    threads = first(OPENMP_PROGRAM, ([*base, *each] for each in openmp()))
    return base if threads is None else threads


def common() -> Flags:
    """What every compiler must accept."""
    flags = ["-std=c++20", "-O3", "-shared", "-fPIC"]
    # Fused multiply-add, and square roots without a check for negative numbers. This is not
    # -ffast-math: NaN and infinity keep their meaning.
    flags += ["-ffp-contract=fast", "-fno-math-errno"]
    sanitizer = os.environ.get("CLUSTERCAPS_SANITIZE")
    if sanitizer:
        flags += [f"-fsanitize={sanitizer}", "-g", "-fno-omit-frame-pointer"]
    return flags


def machine(march: str) -> Iterator[Flags]:
    """Flags for the instruction set, the best ones first."""
    native = march == "native"
    if native and platform.machine().lower() in ("arm64", "aarch64"):
        yield ["-mcpu=native"]
    yield [f"-march={march}"]
    if native:
        yield []


def openmp() -> Iterator[Flags]:
    """Flags for OpenMP."""
    yield ["-fopenmp"]
    if sys.platform == "darwin":
        # The library is the one of torch; the header may come from it or from Homebrew.
        yield ["-Xclang", "-fopenmp", "-lomp"]
