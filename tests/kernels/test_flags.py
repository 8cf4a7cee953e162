"""Compilers that do not accept every flag, and those that are not supported."""

import os
import platform
import shutil
import sys
from pathlib import Path

import pytest

from clustercaps import kernels
from clustercaps.kernels import availability, build, flags, library


def answering(*refused: str):
    """A compiler that fails if it gets one of some flags."""
    return lambda program, given: not any(flag in given for flag in refused)


def on(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)


def found(*refused: str, march: str = "native") -> list[str]:
    accepted = flags.accepted(march, answering(*refused))
    assert accepted is not None
    return accepted[len(flags.common()) :]


def test_flags_for_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "linux", "x86_64")
    assert found() == ["-march=native", "-fopenmp"]
    assert flags.first_choice("native") == flags.accepted("native", answering())
    assert found("-fopenmp") == ["-march=native"]
    assert found("-march=native", "-fopenmp") == []
    # Another instruction set than the one that was asked for would be a surprise.
    assert flags.accepted("x86-64-v3", answering("-march=x86-64-v3")) is None
    assert flags.accepted("native", answering("-O3")) is None
    on(monkeypatch, "linux", "aarch64")
    assert found() == ["-mcpu=native", "-fopenmp"]


def test_flags_for_apple(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "darwin", "arm64")
    with_library = ["-Xclang", "-fopenmp", "-lomp"]

    def apple(program: str, given: list[str]) -> bool:
        return "-fopenmp" not in given or given[-3:] == with_library

    assert flags.accepted("native", apple) == [*flags.common(), "-mcpu=native", *with_library]
    assert found("-fopenmp") == ["-mcpu=native"]
    assert found("-mcpu=native", "-fopenmp") == ["-march=native"]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the place of the compiler, and an empty cache."""
    script = tmp_path / "compiler"
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("CLUSTERCAPS_CACHE", str(tmp_path / "cache"))
    build._version.cache_clear()
    return script


def test_the_kernel_is_built_with_what_the_compiler_accepts(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as usual:
        usual.delenv("CXX")
        usual.delenv("CLUSTERCAPS_CACHE")
        shutil.copy(build.build(), tmp_path / "kernel.so")
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\n'
        'case "$*" in *-fopenmp*) echo "unsupported option -fopenmp"; exit 1;; esac\n'
        f'while [ "$1" != -o ]; do shift; done; cp {tmp_path}/kernel.so "$2"\n'
    )
    compiler.chmod(0o755)
    path = build.build()
    assert library.Library(path).has_threads
    log = path.with_suffix(".log").read_text()
    attempts = [line for line in log.splitlines() if line.startswith(str(compiler))]
    assert "unsupported option" in log
    # The kernel, a plain program, one with OpenMP, the kernel again.
    assert [("cluster_cpu.cpp" in line, "-fopenmp" in line) for line in attempts] == [
        *((True, True), (False, False), (False, True), (True, False))
    ]


def test_a_kernel_with_one_thread_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library.thread_advice() == ""
    monkeypatch.setattr(library.load(), "has_threads", False)
    assert "uses one thread" in library.thread_advice()


@pytest.mark.parametrize("name", ["cl", "cl.exe", "clang-cl.exe"])
def test_microsofts_compiler_no_kernel(compiler: Path, monkeypatch, name: str) -> None:
    other = compiler.with_name(name)
    other.write_text("#!/bin/sh\nexit 2\n")
    other.chmod(0o755)
    monkeypatch.setenv("CXX", str(other))
    with pytest.raises(build.BuildError, match="not with Microsoft's compiler"):
        build.build()
    assert not Path(os.environ["CLUSTERCAPS_CACHE"]).exists()


def test_windows_uses_plain_pytorch(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX")
    monkeypatch.delenv("CLUSTERCAPS_BACKEND", raising=False)
    caches = (availability.load_failure, availability.warn_once, library.load)
    for each in caches:
        each.cache_clear()
    with monkeypatch.context() as there:
        there.setattr(sys, "platform", "win32")
        with pytest.warns(UserWarning, match="plain PyTorch instead of .*: no C\\+\\+ compiler"):
            assert kernels.choose("auto", "cpu") == "chunked"
    for each in caches:
        each.cache_clear()
