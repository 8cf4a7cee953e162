"""Ctrl-C and closed pipes, in processes of their own."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clustercaps.training.progress import Progress
from clustercaps.training.reporting import run_bar, say, standing
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.settings import resolve

TINY = (
    "m1 --limit 32 --test-limit 20 --batch-size 16 --set dim=2 --set votes=3 --set channels=2 "
    "--no-figures"
)
ENTERED = (
    "import sys; from clustercaps.__main__ import main\n"
    "print('started', flush=True); sys.exit(main())"
)


def command(out: Path, epochs: int, code: str | None = None) -> list[str]:
    start = ["-m", "clustercaps"] if code is None else ["-c", code]
    flags = [*TINY.split(), "--epochs", str(epochs), "--out", str(out)]
    return [sys.executable, *start, "train", *flags]


def listen() -> None:
    """Undo what a shell does to commands in the background: they ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.parametrize("delay", [0.0, 0.7])
def test_ctrl_c_at_the_start_is_quiet(tmp_path: Path, delay: float) -> None:
    process = subprocess.Popen(
        command(tmp_path / "run", 100, ENTERED),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), err
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "run").exists()


def test_a_second_ctrl_c_ends_the_run_at_once(tmp_path: Path) -> None:
    # Steps that take a minute: only the second signal can end them in time.
    code = (
        "import sys, time; from clustercaps.__main__ import main\n"
        "from clustercaps.training.loop import Trainer\n"
        "def slow(self, parts): print('step', flush=True); time.sleep(60); return True\n"
        "Trainer._step = slow; sys.exit(main())"
    )
    process = subprocess.Popen(
        command(tmp_path / "run", 1, code),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "step\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_closed_pipes_do_not_stop_the_run(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path / "run", 3), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stderr.close()
    # As `head -1` does.
    assert process.stdout.readline().startswith(b"epoch 1/3")
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert RunFolder(tmp_path / "run").result is not None
    assert len(RunFolder(tmp_path / "run").metrics()) == 3


def test_a_run_needs_no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = resolve("m1", "fashion-mnist-mini", "fast")
    # As Python sets them after `>&- 2>&-`.
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    say("nobody reads this")
    say("nor this", sys.stderr)
    with run_bar(settings, Progress(), steps=10, shown=True) as bar:
        bar.set_postfix_str(standing(settings, Progress()), refresh=False)
        bar.update()
