"""Versions of the package side by side: an older commit unpacked, each version in a process."""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import clustercaps
from clustercaps.bench.cases import Case

PACKAGE = Path(clustercaps.__file__).parent
WORKER = Path(__file__).with_name("version_worker.py")


def find_commit(name: str) -> str:
    """The full hash of a commit of the repository that this package runs from.

    Raises:
        ValueError: There is no such commit, or no repository.
    """
    done = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if done.returncode:
        raise ValueError(
            f"--against takes a CSV file of `bench peers` or a commit of a clone of clustercaps; "
            f"{name!r} is no file, and no commit of a repository at {PACKAGE.parent}"
        )
    return done.stdout.decode().strip()


@contextmanager
def unpacked(commit: str) -> Iterator[Path]:
    """A temporary folder with the package as it was at a commit."""
    done = _git("archive", "--format=tar", commit, PACKAGE.name)
    if done.returncode:
        raise ValueError(f"commit {commit[:12]} cannot be unpacked: {done.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory(prefix="clustercaps-") as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder)
        yield Path(folder)


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(["git", *arguments], cwd=PACKAGE.parent, capture_output=True)
    except OSError as error:
        raise ValueError(f"--against COMMIT needs git: {error}") from error


class Version:
    """A process that measures one system as one version of the package computes it."""

    def __init__(self, process: "subprocess.Popen[str]", errors: IO[str], name: str) -> None:
        self._process, self._errors, self._name = process, errors, name

    def ask(self, measure: str, **settings: Any) -> dict[str, Any]:
        """Send a request to the worker and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"measure": measure, **settings}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
            raise OSError(f"{self._name} cannot be measured: {last}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def running(
    folder: Path, case: Case, threads: int, environment: Mapping[str, str] = os.environ
) -> Iterator[Version]:
    """A process that measures a system, while the context lasts.

    Args:
        folder: Where that version's package folder is.
        case: What it computes.
        threads: For torch.
        environment: Its environment variables.
    """
    task = json.dumps({"case": asdict(case), "threads": threads})
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-c", WORKER.read_text(encoding="utf-8"), task],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield Version(process, errors, f"{case.name} of the package in {folder}")
        finally:
            process.kill()
