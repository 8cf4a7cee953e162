"""Kernels in the cache: damaged, written by others, or impossible to build."""

import _ctypes
import ctypes
import errno
import os
import pwd
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import clustercaps as cc
from clustercaps import kernels
from clustercaps.kernels import availability, build, built, library

Compiler = Callable[[str, str], None]
SOMEBODY = 12345


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the folder of its kernels."""
    monkeypatch.setenv("CLUSTERCAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CLUSTERCAPS_BACKEND", raising=False)
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def compiler(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Sets $CXX to a script that copies a kernel, or does something else instead."""
    script, kernel = tmp_path / "compiler", tmp_path / "kernel.so"

    def become(work: str, version: str = "echo 1.0") -> None:
        script.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then {version}; exit; fi\n{work}\n')
        script.chmod(0o755)
        build._version.cache_clear()

    monkeypatch.setenv("CXX", build.find_compiler()[0])
    with monkeypatch.context() as usual:
        usual.delenv("CLUSTERCAPS_CACHE")
        shutil.copy(build.build(), kernel)
    monkeypatch.setenv("CXX", str(script))
    # The argument after -o is the name of the library.
    find = 'while [ "$1" != -o ]; do shift; done'
    become(f'echo x >> {tmp_path}/calls; {find}; cp {kernel} "$2"')
    return become


@pytest.fixture
def fresh() -> Iterator[None]:
    """As in a process that has not loaded the kernel."""
    caches = (availability.load_failure, availability.warn_once, library.load)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


def calls(tmp_path: Path) -> int:
    file = tmp_path / "calls"
    return len(file.read_text().split()) if file.exists() else 0


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "empty":
        path.write_bytes(b"")
    elif how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "one bit":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif how == "text":
        path.write_text("not a library")
    elif how == "another library":
        shutil.copy(_ctypes.__file__, path)
    elif how == "no checksum":
        path.with_suffix(".sha256").unlink()
    else:
        path.with_suffix(".sha256").write_bytes(b"\xff" if how == "bad checksum" else b"")


DAMAGES = ("empty", "truncated", "one bit", "text", "another library", "no checksum")


@pytest.mark.parametrize("how", [*DAMAGES, "bad checksum", "empty checksum"])
def test_a_damaged_kernel_is_built_again(compiler: Compiler, tmp_path: Path, how: str) -> None:
    path = build.build()
    right = path.read_bytes()
    assert build.build() == path
    assert calls(tmp_path) == 1
    # A copy in its place: the compiler's output must not be a link to what is damaged.
    damage(path, how)
    assert build.build() == path
    assert calls(tmp_path) == 2
    assert path.read_bytes() == right
    library.Library(path)
    assert build.build() == path
    assert calls(tmp_path) == 2


def test_a_library_without_the_functions_is_not_used(compiler: Compiler, fresh: None) -> None:
    compiler(f'while [ "$1" != -o ]; do shift; done; cp {_ctypes.__file__} "$2"', "echo 2")
    with pytest.raises(build.BuildError, match="delete it to build it again"):
        library.load()
    check_falls_back("delete it to build it again")


def check_falls_back(why: str) -> None:
    """A layer warns in one line that says why, once, and computes in plain PyTorch."""
    layer = cc.ClusterCapsules2d(1, 1, 1, 2, votes=2, backend="auto")
    for each in (availability.load_failure, availability.warn_once, library.load):
        each.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert layer(torch.ones(2, 1, 1, 4, 4)).isfinite().all()
    (warning,) = caught
    assert why in str(warning.message)
    assert "\n" not in str(warning.message)
    assert "instead of the fused CPU kernel" in str(warning.message)
    assert "cpu" in kernels.status_table()


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o757])
@pytest.mark.parametrize("what", ["folder", "kernel"])
def test_what_others_can_write_is_refused(
    compiler: Compiler, fresh: None, what: str, mode: int
) -> None:
    path = build.build()
    (path if what == "kernel" else path.parent).chmod(mode)
    check_falls_back("other users can write")


def test_an_empty_folder_that_others_can_write_is_refused(
    compiler: Compiler, fresh: None, folder: Path
) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    check_falls_back("other users can write")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("what", ["folder", "kernel"])
def test_what_belongs_to_another_user_is_refused(
    compiler: Compiler, fresh: None, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = build.build()
    if os.geteuid() == 0:
        os.chown(path if what == "kernel" else path.parent, SOMEBODY, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    check_falls_back("belongs to another user")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of root")
def test_a_kernel_of_root_is_used(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = build.build()
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    assert build.build() == path
    assert calls(tmp_path) == 1


def test_a_kernel_is_private_whatever_the_umask(compiler: Compiler, folder: Path) -> None:
    before = os.umask(0)
    try:
        path = build.build()
    finally:
        os.umask(before)
    assert not folder.stat().st_mode & 0o022
    assert not path.stat().st_mode & 0o022
    assert built.usable(path)


def test_a_finished_kernel_needs_no_writing(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build.build()
    path.parent.chmod(0o555)
    monkeypatch.setattr(build, "take_lock", lambda _: pytest.fail("took the lock"))
    assert build.build() == path
    path.parent.chmod(0o755)


def test_leftovers_of_killed_builds_are_removed(compiler: Compiler, folder: Path) -> None:
    path = build.library_path()
    own = folder / f"building-{path.stem}-abc"
    old, running = folder / "building-old", folder / "building-cluster_cpu-other-abc"
    for left in (own, old, running):
        left.mkdir(parents=True)
        (left / "part.o").touch()
    os.utime(old, (0, time.time() - 2 * built.OLD_SECONDS))
    build.build()
    assert sorted(folder.glob("building-*")) == [running]


@pytest.mark.parametrize("when", ["version", "build"])
def test_a_compiler_that_hangs_is_stopped(
    compiler: Compiler, fresh: None, monkeypatch, tmp_path: Path, folder: Path, when: str
) -> None:
    # The shell waits for a process of its own, as a compiler does.
    hang = f"sleep 300 & echo $! > {tmp_path}/pid; wait"
    compiler(hang, hang if when == "version" else "echo 3")
    monkeypatch.setattr(build, f"{when.upper()}_SECONDS", 0.5)
    check_falls_back("did not end within 0.5 s")
    assert not list(folder.glob("building-*"))
    child = int((tmp_path / "pid").read_text())
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_output_that_is_not_text(compiler: Compiler, folder: Path, tmp_path: Path) -> None:
    compiler("printf '\\377\\376'; exit 3", "printf '\\377'")
    with pytest.raises(build.BuildError, match="failed with code 3; see the log"):
        build.build()
    (log,) = folder.glob("*.log")
    assert b"\xff\xfe" in log.read_bytes()


@pytest.mark.parametrize(
    ("work", "version", "why"),
    [
        ("exit 0", "echo 4", "wrote no library"),
        ("kill -9 $$", "echo 5", "failed with code -9"),
        ("exit 1", "exit 7", "failed with code 7"),
    ],
)
def test_compilers_that_do_not_work(
    compiler: Compiler, fresh: None, work: str, version: str, why: str
) -> None:
    compiler(work, version)
    check_falls_back(why)


@pytest.mark.parametrize("command", ["'", "   ", "/", "/nonexistent/c++", "\udcff"])
def test_a_senseless_cxx_no_compiler(
    folder: Path, fresh: None, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("CXX", command)
    check_falls_back("CXX")
    assert not folder.exists()


def test_no_home_folder(compiler: Compiler, fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: int) -> None:
        raise KeyError("no such user")

    for name in ("HOME", "CLUSTERCAPS_HOME", "CLUSTERCAPS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    check_falls_back("set CLUSTERCAPS_HOME")


def test_a_folder_that_cannot_be_written(
    compiler: Compiler, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTERCAPS_CACHE", "/proc/self/nowhere")
    check_falls_back("cannot use the cache folder /proc/self/nowhere/kernels")


def test_a_full_disk(
    compiler: Compiler, fresh: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(built, "write_atomically", full)
        check_falls_back("No space left on device")
    assert not list(folder.glob("building-*"))
    # Without its checksum it is not trusted.
    assert not built.usable(build.library_path())
    path = build.build()
    assert built.usable(path)
    ctypes.CDLL(str(path))
